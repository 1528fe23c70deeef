"""The commands. They parse and call; the logic is elsewhere. A command imports what it needs when it is called, so that
help comes at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from tasso.cli import bench, data, research, run, use
from tasso.cli.exit_codes import exit_on_error
from tasso.cli.options import parse_run_config
from tasso.version import __version__

__all__ = ["main", "parse_run_config"]

COMMANDS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "run": (run.run, "learn a sequence of tasks, evaluate after each, save, resume"),
    "extend": (run.extend, "learn more tasks after those of a finished run, in a folder of its own"),
    "eval": (run.evaluate, "accuracy of a model, zero-shot or from a run, on every task of a benchmark"),
    "metrics": (run.metrics, "accuracy, forgetting and zero-shot degradation of a run or a matrix file, as JSON"),
    "methods": (run.methods, "the methods: what they train, what they need, what they were verified against"),
    "sweep": (research.sweep, "many runs: methods × sequences × seeds × options, on this machine or on a cluster"),
    "paper": (research.paper, "the runs behind the paper's tables and figures, on any benchmark, and the tables"),
    "report": (research.report, "tables, figures and an HTML page from run folders"),
    "classify": (use.classify, "the classes that a run's model predicts for images"),
    "serve": (use.serve, "a local page: drop an image, see what the models before and after each task predict"),
    "export": (use.export, "a run's model, or any other, for open_clip, transformers, TorchScript or ONNX"),
    "merge": (use.merge, "the weights between two models, and the accuracy along the way"),
    "data": (data.data, "prepare: get the paper's data sets; check: verify a benchmark's data; pack: decode it once"),
    "bench": (bench.bench, "speed of steps, images, evaluation and whole sequences, with random weights"),
    "demo": (research.demo, "the whole idea in three minutes: fine-tuning and TASSO side by side on drawn tasks"),
}
USAGE = "\n".join([
    "usage: tasso COMMAND [options]",
    "",
    *(f"  {name:<9} {summary}" for name, (_, summary) in COMMANDS.items()),
    "",
    "tasso COMMAND --help shows a command's options; tasso --version the version.",
    "With --debug an error shows its traceback, too.",
])  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `tasso` command."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    if args in (["--version"], ["-V"]):
        print(f"tasso {__version__}")
        return
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        return
    if args[0] not in COMMANDS:
        print(f"tasso: no command {args[0]!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tasso").setLevel(logging.INFO)
    command, _ = COMMANDS[args[0]]
    with exit_on_error(debug):
        command(args[1:])
