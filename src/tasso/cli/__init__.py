"""The commands. They parse and call; the logic is elsewhere. What a command needs beside its options is imported when
it is given, so that help comes at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from tasso.cli.bench import bench
from tasso.cli.data import data
from tasso.cli.endings import told
from tasso.cli.learning import evaluate, extend, methods, metrics, run
from tasso.cli.many import demo, paper, report, sweep
from tasso.cli.using import classify, export, merge, serve
from tasso.cli.words import parse_run_config
from tasso.version import __version__

__all__ = ["main", "parse_run_config"]

USAGE = """usage: tasso COMMAND [options]

  run       learn a sequence of tasks, evaluate after each, save, resume
  extend    more tasks after those of a finished run, in a folder of its own
  eval      accuracy of a model, zero-shot or from a run, on every task of a benchmark
  metrics   accuracy, forgetting and zero-shot degradation of a results.json or a matrix file, as JSON
  methods   the methods: what they train, what they need, what they were verified against
  sweep     many runs: methods × sequences × seeds × options, on this machine or on a cluster
  paper     the runs behind the paper's tables and figures, on any benchmark, and the tables
  report    tables, figures and an HTML page from run folders
  classify  what a run's model says about images
  serve     a local page: drop an image, see what the models before and after each task say
  export    a run's model, or any other, for open_clip, transformers, TorchScript or ONNX
  merge     the weights between two models, and the accuracy along the way
  data      prepare: get the paper's data sets; check: look through a benchmark's data; pack: decode it once
  bench     speed of steps, images, evaluation and whole sequences, with random weights
  demo      the whole idea in three minutes: fine-tuning and TASSO side by side on drawn tasks

tasso COMMAND --help shows a command's options; tasso --version the version.
With --debug an error shows where it happened, too."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `tasso` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if words in (["--version"], ["-V"]):
        print(f"tasso {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    commands: dict[str, Callable[[list[str]], None]] = {
        "run": run, "extend": extend, "eval": evaluate, "metrics": metrics, "methods": methods, "sweep": sweep,
        "paper": paper, "report": report, "classify": classify, "serve": serve, "export": export, "merge": merge,
        "data": data, "bench": bench, "demo": demo,
    }  # fmt: skip
    if words[0] not in commands:
        print(f"tasso: no command {words[0]!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tasso").setLevel(logging.INFO)
    with told(debug):
        commands[words[0]](words[1:])
