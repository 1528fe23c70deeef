"""The commands. They parse and call; the logic is elsewhere. A command imports what it needs when it is called, so that
help comes at once."""

from __future__ import annotations

import atexit
import gc
import logging
import sys
from collections.abc import Callable, Sequence

from tasso.cli import bench, data, methods, research, run, use
from tasso.cli.exit_codes import exit_on_error, open_standard_streams
from tasso.cli.options import parse_run_config
from tasso.errors import ConfigError, no_such, printable
from tasso.version import __version__

__all__ = ["COMMANDS", "GROUPS", "main", "parse_run_config"]

Command = Callable[[list[str]], None]

GROUPS: dict[str, dict[str, tuple[Command, str]]] = {
    "learn": {
        "demo": (research.demo, "the whole idea in a minute or two: drawn tasks, learned by three methods"),
        "run": (run.run, "learn a sequence of tasks, evaluate after each, save, resume"),
        "tune": (run.tune, "choose the learning rate of a run on validation images of its first tasks"),
        "extend": (run.extend, "learn more tasks after those of a finished run, in a folder of its own"),
        "methods": (methods.methods, "the methods, one row each; with a name, all about that one"),
    },
    "use": {
        "eval": (run.evaluate, "accuracy of a model, zero-shot or from a run, on every task of a benchmark"),
        "classify": (use.classify, "the classes that a run's model predicts for images"),
        "serve": (use.serve, "a local page: drop an image, see what the models before and after each task predict"),
        "export": (use.export, "a run's model, or any other, for open_clip, transformers or ONNX"),
        "merge": (use.merge, "the weights between two models, and the accuracy along the way"),
    },
    "data": {
        "data prepare": (data.data_prepare, "get, unpack and annotate the paper's data sets"),
        "data check": (data.data_check, "verify sizes, images and class names of a benchmark or of your own folders"),
        "data pack": (data.data_pack, "decode each image of a benchmark once, for all runs"),
    },
    "research": {
        "report": (research.report, "tables, figures and an HTML page from run folders"),
        "metrics": (run.metrics, "accuracy, forgetting and zero-shot degradation of a run or a matrix file, as JSON"),
        "sweep": (research.sweep, "many runs: methods × sequences × seeds × options, here or on a cluster"),
        "paper": (research.paper, "the runs behind the paper's tables and figures, on any benchmark, and the tables"),
        "bench": (bench.bench, "speed of steps, images, evaluation and whole sequences, with random weights"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, (command, _) in group.items()}


def usage(prefix: str = "") -> str:
    """The commands whose names begin so, in groups."""
    lines = [f"usage: tasso {prefix}COMMAND [options]"]
    for title, group in GROUPS.items():
        shown = {name: summary for name, (_, summary) in group.items() if name.startswith(prefix)}
        lines += ["", f"{title}:", *(f"  {name:<13} {summary}" for name, summary in shown.items())] if shown else []
    return "\n".join([
        *lines,
        "",
        "tasso COMMAND --help shows a command's options; tasso --version the version.",
        "With --debug an error shows its traceback, too.",
    ])  # fmt: skip


class Formatter(logging.Formatter):
    """Messages as they may be printed."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `tasso` command."""
    open_standard_streams()
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    if args in (["--version"], ["-V"]):
        print(f"tasso {__version__}")
        return
    atexit.register(gc.freeze)  # else Python searches all objects of torch for cycles before it ends
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("tasso").setLevel(logging.INFO)
    with exit_on_error(debug):
        command, rest = find_command(args)
        command(rest)


def find_command(args: list[str]) -> tuple[Command, list[str]]:
    """The command that the first words name, and its arguments. Without a name: help."""
    for count in (2, 1):
        if (name := " ".join(args[:count])) in COMMANDS:
            return COMMANDS[name], args[count:]
    prefix, names = "", [name.split()[0] for name in COMMANDS]
    if args and args[0] in names:  # the first word of several commands
        prefix, args = f"{args[0]} ", args[1:]
        names = [name.removeprefix(prefix) for name in COMMANDS if name.startswith(prefix)]
        if not args:
            raise ConfigError(f"{prefix.strip()}: which? {', '.join(names)}")
    if not args or args[0] in ("-h", "--help"):
        return lambda _: print(usage(prefix)), []
    where = f"{prefix.strip()}: " if prefix else ""
    raise ConfigError(where + no_such("command", args[0], dict.fromkeys(names)))
