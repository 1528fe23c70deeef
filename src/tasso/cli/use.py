"""Commands that use what was learned: classify, serve, export, merge."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Literal

from tasso.cli.options import add_after, add_device, add_run_options, given_options, split_commas
from tasso.cli.parser import Parser
from tasso.errors import ConfigError

log = logging.getLogger("tasso")


def classify(args: list[str]) -> None:
    """tasso classify RUN IMAGE …"""
    from tasso.data.images.files import find_images
    from tasso.evaluation.predict import PROBABILITY_NOTE
    from tasso.progress import progress
    from tasso.training.run import Run

    parser = Parser("tasso classify", "The classes that a run's model predicts for images.")
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("images", type=str, nargs="+", help="files, folders or patterns")
    parser.add_argument("--task", type=str | None, default=None, help="choose among this task's classes [all tasks']")
    parser.add_argument("--classes", type=str | None, default=None, help="choose among these names, with commas")
    add_after(parser)
    parser.add_argument("--top", type=int, default=5, help="predictions per image")
    parser.add_argument("--json", type=bool, default=False, help="print one JSON object per image")
    parser.add_argument(
        "--unreadable", type=Literal["skip", "error"], default="skip",
        help="files that are no images: go on and exit with 1, or stop at the first",
    )  # fmt: skip
    add_device(parser)
    values = parser.parse(args)
    trained = Run(values["run"], after=values["after"], device=values["device"])
    among = trained.candidates(values["task"], split_commas(values["classes"]))
    files = find_images(values["images"])
    # The progress bar owns standard output while it is drawn: print around it, or after it in a terminal.
    output, lines, unreadable = sys.stdout, list[str](), 0
    with progress("classifying", len(files)) as advance:
        for answer in trained.predict_files(files, among, values["top"], skip=values["unreadable"] == "skip"):
            unreadable += bool(answer.error)
            lines += [json.dumps(answer.to_dict(), ensure_ascii=False)] if values["json"] else answer.lines()
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
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument(
        "--host", type=str, default="127.0.0.1", help="address to listen on; 127.0.0.1 is this machine only"
    )
    parser.add_argument("--port", type=int, default=8000, help="port; 0 takes a free one")
    parser.add_argument("--max-mib", type=float, default=20.0, help="largest file that is accepted, in MiB")
    add_device(parser)
    values = parser.parse(args)
    serve_run(values["run"], values["host"], values["port"], values["max_mib"], values["device"])


def export(args: list[str]) -> None:
    """tasso export RUN"""
    from tasso.models.export import FORMATS, export_model
    from tasso.training.source import open_source

    parser = Parser("tasso export", "Write a model as a folder that other libraries load.")
    parser.add_argument("folder", type=Path | None, nargs="?", default=None, help="run folder")
    parser.add_argument("--run", type=Path | None, default=None, help="the same, as an option")
    add_after(parser)
    add_run_options(parser, "export")
    parser.add_argument("--to", type=Literal[tuple(FORMATS)], default="open_clip", help="format")
    parser.add_argument("--out", type=Path | None, default=None, help="folder to write [exported/NAME-FORMAT]")
    values = parser.parse(args)
    given = [values[key] for key in ("folder", "run", "model") if values[key] is not None]
    if len(given) != 1:
        raise ConfigError("export: give either --run or --model (a run folder needs no --run before it)")
    source = open_source(values["folder"] or values["run"], values["after"], values["model"], values["pretrained"])
    folder = export_model(source, values["to"], values["out"])
    print(FORMATS[values["to"]].usage.replace("FOLDER", str(folder)))


def merge(args: list[str]) -> None:
    """tasso merge A B"""
    from tasso.report.merging import merge_into, sweep_between

    parser = Parser("tasso merge", "The weights (1 − α)·A + α·B of two models, and the accuracy along the way.")
    for name in ("a", "b"):
        parser.add_argument(name, type=str, help="run folder, checkpoint file, MODEL or MODEL:PRETRAINED")
    parser.add_argument("--alpha", type=float | None, default=None, help="0 is A, 1 is B [0.5 unless --sweep]")
    parser.add_argument("--sweep", type=str | None, default=None, help="evaluate these values of alpha, with commas")
    parser.add_argument("--out", type=Path, required=True, help="folder to write: the merged model, or the curve")
    add_run_options(parser, "merge")
    values = parser.parse(args)
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
