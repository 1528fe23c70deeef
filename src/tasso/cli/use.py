"""Commands that use what was learned: classify, serve, export, merge."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Literal

from tasso.cli.options import (
    add_after,
    add_own_method,
    add_run_options,
    given_options,
    import_method_of_run,
    split_commas,
)
from tasso.cli.parser import Parser
from tasso.errors import ConfigError, printable

log = logging.getLogger("tasso")


def classify(args: list[str]) -> None:
    """tasso classify RUN IMAGE …"""
    from tasso.data.images.files import find_images
    from tasso.evaluation.predict import PROBABILITY_NOTE
    from tasso.progress import progress
    from tasso.training.run import Run

    parser = Parser("tasso classify", "The classes that a run's model predicts for images.")
    parser.argument("run", Path, "run folder")
    parser.argument("images", str, "files, folders or patterns", metavar="IMAGE", count="+")
    parser.option("--task", str, "choose among this task's classes", shown="all tasks'", metavar="NAME")
    parser.option("--classes", str, "choose among these names, with commas", metavar="NAME,NAME")
    add_after(parser)
    parser.option("--top", int, "predictions per image", 5)
    parser.option("--json", bool, "print one JSON object per image", False)
    text = "files that are no images: go on and exit with 1, or stop at the first"
    parser.option("--unreadable", Literal["skip", "error"], text, "skip")
    add_own_method(parser)
    add_run_options(parser, "classify")
    values = parser.parse(args)
    import_method_of_run(values)
    trained = Run(values["run"], after=values["after"], **given_options(values, "classify"))
    among = trained.candidates(values["task"], split_commas(values["classes"]))
    files = find_images(values["images"])
    # The progress bar owns standard output while it is drawn: print around it, or after it in a terminal.
    output, lines, unreadable = sys.stdout, list[str](), 0
    with progress("classifying", len(files)) as advance:
        for answer in trained.predict_files(files, among, values["top"], skip=values["unreadable"] == "skip"):
            unreadable += bool(answer.error)
            lines += (
                [json.dumps(answer.to_dict(), ensure_ascii=False)] if values["json"] else map(printable, answer.lines())
            )
            if not output.isatty():
                print(*lines, sep="\n", file=output)
                lines.clear()
            advance(1, "")
    if lines:
        print(*lines, sep="\n")
    log.info("%s; %s. %s", trained.stage, among, PROBABILITY_NOTE)
    if unreadable:
        print(f"tasso: {unreadable} of {len(files)} files could not be read as images", file=sys.stderr)
        sys.exit(1)


def serve(args: list[str]) -> None:
    """tasso serve RUN"""
    from tasso.serve import serve_run

    parser = Parser("tasso serve", "A local page that shows what a run's models predict for an image.")
    parser.argument("run", Path, "run folder")
    parser.option("--host", str, "address to listen on; 127.0.0.1 is this machine only", "127.0.0.1", metavar="ADDRESS")
    parser.option("--port", int, "port; 0 takes a free one", 8000)
    parser.option("--max-mib", float, "largest file that is accepted, in MiB", 20.0)
    add_own_method(parser)
    add_run_options(parser, "serve")
    values = parser.parse(args)
    import_method_of_run(values)
    serve_run(values["run"], values["host"], values["port"], values["max_mib"], **given_options(values, "serve"))


def export(args: list[str]) -> None:
    """tasso export [RUN]"""
    from tasso.models.export import ALIASES, FORMATS, export_model
    from tasso.training.source import open_source

    parser = Parser("tasso export", "Write a model as a folder that other libraries load.")
    parser.argument("run", Path, "run folder; or give --model", count="?")
    add_after(parser)
    parser.option("--to", Literal[(*FORMATS, *ALIASES)], "format; transformers is another name of hf", "open_clip")
    parser.option("--out", Path, "folder to write", shown="exported/NAME-FORMAT")
    add_own_method(parser)
    add_run_options(parser, "export", {"model": "none"})
    values = parser.parse(args)
    import_method_of_run(values)
    if (values["run"] is None) == (values["model"] is None):
        raise ConfigError("export: give either RUN or --model")
    source = open_source(values["run"], values["after"], values["model"], values["pretrained"])
    to = ALIASES.get(values["to"], values["to"])
    folder = export_model(source, to, values["out"])
    usage = (FORMATS[to].of_run if values["run"] else "") or FORMATS[to].usage
    print(usage.replace("FOLDER", str(folder)))


def merge(args: list[str]) -> None:
    """tasso merge A B"""
    from tasso.report.merging import merge_into, sweep_between

    parser = Parser("tasso merge", "The weights (1 − α)·A + α·B of two models, and the accuracy along the way.")
    for name in ("a", "b"):
        parser.argument(name, str, "run folder, checkpoint file, MODEL or MODEL:PRETRAINED")
    parser.option("--alpha", float, "0 is A, 1 is B", shown="0.5 unless --sweep")
    parser.option("--sweep", str, "evaluate these values of alpha, with commas", metavar="X,X")
    parser.option("--out", Path, "folder to write: the merged model, or the curve", required=True)
    add_own_method(parser)
    add_run_options(parser, "merge")
    values = parser.parse(args)
    import_method_of_run(values)
    given = given_options(values, "merge")
    if values["sweep"] is not None:
        if values["alpha"] is not None:
            raise ConfigError("merge: give either --alpha or --sweep")
        print("\n".join(sweep_between(values["a"], values["b"], values["sweep"], given, values["out"])))
        return
    if given:
        raise ConfigError(f"merge: --{next(iter(given)).replace('_', '-')} belongs to --sweep")
    alpha = 0.5 if values["alpha"] is None else values["alpha"]
    print(f"merged: {merge_into(values['a'], values['b'], alpha, values['out'])}")
