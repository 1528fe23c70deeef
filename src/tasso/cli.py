"""The commands. They parse and call; the logic is elsewhere."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from tasso.config import RunConfig, from_dict, read_yaml
from tasso.errors import TassoError
from tasso.version import __version__

DEFAULT_METHOD = "tasso"

USAGE = """usage: tasso COMMAND [options]

  run       learn a sequence of tasks, evaluate after each, save, resume
  eval      accuracy of a model, zero-shot or from a run, on every task of a benchmark
  metrics   accuracy, forgetting and zero-shot degradation of a results.json or a matrix file, as JSON
  methods   the methods: what they train, what they need, what they were verified against
  report    tables and an HTML page from run folders

tasso COMMAND --help shows a command's options; tasso --version the version."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `tasso` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        print(f"tasso {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    commands: dict[str, Callable[[list[str]], None]] = {
        "run": run, "eval": evaluate, "metrics": metrics, "methods": methods, "report": report,
    }  # fmt: skip
    if words[0] not in commands:
        sys.exit(f"tasso: no command {words[0]!r}\n\n{USAGE}")
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tasso").setLevel(logging.INFO)
    try:
        commands[words[0]](words[1:])
    except TassoError as error:
        print(f"tasso: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        print(f"tasso: {stop or 'stopped'}", file=sys.stderr)
        sys.exit(130)


def run(words: list[str]) -> None:
    """tasso run"""
    from tasso.learner import learn
    from tasso.report import SETTINGS, print_table, read_run, summary_table

    config = parse_run_config("tasso run", words)
    learn(config)
    result = read_run(config.out)
    for setting in SETTINGS:
        print_table(summary_table([result], setting))
    print(f"results: {config.out / 'results.json'}")


def evaluate(words: list[str]) -> None:
    """tasso eval"""
    from tasso.learner import evaluate as evaluate_model
    from tasso.runs import RunFolder

    parser = _parser("tasso eval", "Accuracy on every task of a benchmark, in both settings.")
    parser.add_argument("--run", type=Path | None, default=None, help="evaluate this run's latest checkpoint")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of a table")
    wanted = {"benchmark", "data_root", "sequence", "limit_tasks", "check_counts", "model", "pretrained", "template",
              "protocol", "device", "precision", "eval_batch_size", "workers", "cache_gib"}  # fmt: skip
    fields = [f for f in dataclasses.fields(RunConfig) if f.name in wanted]
    # With --run, what is not given is as it was in that run.
    _add_fields(parser, RunConfig, fields)
    values = _values(parser, words)
    folder, as_json = values.pop("run"), values.pop("json")
    given = {key: value for key, value in values.items() if value is not None}
    base = {key: v for key, v in RunFolder(folder).read_config().to_dict().items() if key in wanted} if folder else {}
    result = evaluate_model(from_dict({**base, **given}, "tasso eval"), folder)
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _print_rows(result)


def _print_rows(result: dict[str, Any]) -> None:
    width = max(map(len, result["tasks"]))
    print(f"{'':{width}}    MTIL    MCIL")
    for name, mtil, mcil in zip(result["tasks"], result["mtil"], result["mcil"], strict=True):
        print(f"{name:{width}}  {mtil:6.2f}  {mcil:6.2f}")
    mean = [sum(result[setting]) / len(result["tasks"]) for setting in ("mtil", "mcil")]
    print(f"{'mean':{width}}  {mean[0]:6.2f}  {mean[1]:6.2f}")


def metrics(words: list[str]) -> None:
    """tasso metrics FILE"""
    from tasso.metrics import metrics_of_file

    parser = _parser("tasso metrics", "Metrics as JSON.")
    parser.add_argument("file", type=Path, help='run folder, results.json, or {"zero_shot": […], "matrix": [[…], …]}')
    print(json.dumps(metrics_of_file(_values(parser, words)["file"]), indent=1))


def methods(words: list[str]) -> None:
    """tasso methods"""
    from tasso.methods import METHODS

    parser = _parser("tasso methods", "What there is to choose from.")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    as_json = _values(parser, words)["json"]
    about = {name: _describe(cls) for name, cls in METHODS.items()}
    if as_json:
        print(json.dumps(about, indent=1))
        return
    for name, facts in about.items():
        print(f"{name}: {facts['summary']}")
        for key in ("trains", "teachers", "wants", "source", "verified"):
            print(f"  {key:<9} {facts[key]}")
        for key, value in facts["options"].items():
            print(f"  --method.{key.replace('_', '-'):<24} {value['default']!s:<10} {value['help']}")
        print()


def _describe(cls: Any) -> dict[str, Any]:
    """A method's facts, from the method itself."""
    wants = ", ".join(wanted.name for wanted in cls().wants()) or "nothing beside the task's pictures"
    options = {f.name: {"default": f.default, "help": f.metadata["help"]} for f in dataclasses.fields(cls)}
    trains = {"visual": "image tower", "both": "both towers", "none": "added modules only"}[cls.towers]
    return {
        "title": cls.title, "summary": cls.summary, "trains": trains, "teachers": cls.teachers, "wants": wants,
        "source": cls.source, "verified": cls.verified, "options": options,
    }  # fmt: skip


def report(words: list[str]) -> None:
    """tasso report RUN …"""
    from tasso.report import (
        SETTINGS,
        print_table,
        read_runs,
        summary_table,
        to_csv,
        to_latex,
        to_markdown,
        write_page,
    )

    parser = _parser("tasso report", "Tables and an HTML page from run folders; nothing is trained.")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of run folders")
    formats = Literal["terminal", "markdown", "csv", "latex"]
    parser.add_argument("--format", type=formats, default="terminal", help="format of the tables on standard output")
    parser.add_argument("--html", type=Path | None, default=None, help="write one self-contained HTML page here")
    values = _values(parser, words)
    runs = read_runs(values["runs"])
    render = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}.get(values["format"])
    for setting in SETTINGS:
        table = summary_table(runs, setting)
        if render is None:
            print_table(table)
        else:
            print(render(table))
    if values["html"]:
        write_page(runs, values["html"], title="tasso report", intro="")
        print(f"page: {values['html']}")


# -- parsing ---------------------------------------------------------------------------------------------------


def parse_run_config(program: str, words: list[str]) -> RunConfig:
    """A RunConfig from the command line and the YAML files it names; unknown and ill-typed keys are errors.

    The method is looked up first, so that its own hyper-parameters are options too, with their types and help.
    """
    from tasso.methods import METHODS

    files, words = _take_config_files([_method_word(word) for word in words])
    from_files: dict[str, Any] = {}
    for path in files:
        _merge(from_files, _from_file(path))
    name = _chosen_method(words) or from_files.get("method", {}).get("name") or DEFAULT_METHOD
    parser = _parser(program, "Learn a sequence of tasks. Every option may also stand in a YAML file (--config).")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file with options; repeatable")
    _add_fields(parser, RunConfig, [f for f in dataclasses.fields(RunConfig) if f.name != "method"])
    parser.add_argument("--method.name", type=Literal[tuple(METHODS)], default=None, help="method")
    if name in METHODS:
        cls = METHODS[name]
        _add_fields(parser, cls, list(dataclasses.fields(cls)), prefix="method.", title=f"method {name}")
    values = _values(parser, words)
    values.pop("config")  # taken out above
    given = {key: value for key, value in values.items() if value is not None and key != "method"}
    given["method"] = {key: value for key, value in values["method"].items() if value is not None}
    merged = from_files
    _merge(merged, given)
    merged["method"] = {"name": name, **merged["method"]}
    return from_dict(merged, program)


def _method_word(word: str) -> str:
    """`--method tasso` is short for `--method.name tasso`."""
    if word == "--method" or word.startswith("--method="):
        return word.replace("--method", "--method.name", 1)
    return word


def _take_config_files(words: list[str]) -> tuple[list[Path], list[str]]:
    """The YAML files that the words name, and the words without them: files are read first, whatever their place."""
    files, rest = [], []
    remaining = iter(words)
    for word in remaining:
        if word == "--config":
            files.append(Path(next(remaining, "")))
        elif word.startswith("--config="):
            files.append(Path(word.removeprefix("--config=")))
        else:
            rest.append(word)
    return files, rest


def _chosen_method(words: list[str]) -> str | None:
    """The method that the words ask for, before anything else is parsed; the last one wins."""
    name = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--method.name":
            name = following
        elif word.startswith("--method.name="):
            name = word.removeprefix("--method.name=")
    return name


def _from_file(path: Path) -> dict[str, Any]:
    """A YAML file's options, checked key by key so that the error names file and key."""
    values = read_yaml(path)
    values.pop("versions", None)  # a run's own config.yaml can be used again
    return {key: value for key, value in from_dict(values, str(path)).to_dict().items() if key in values}


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Later options win. Another method's hyper-parameters are dropped with it."""
    method = more.pop("method", {})
    into.update(more)
    before = into.get("method", {})
    if method.get("name", before.get("name")) != before.get("name") and before.get("name") is not None:
        before = {}
    into["method"] = {**before, **method}


def _parser(program: str, description: str) -> ArgumentParser:
    return ArgumentParser(prog=program, description=description)


def _add_fields(
    parser: ArgumentParser,
    owner: type,
    fields: list[dataclasses.Field[Any]],
    *,
    prefix: str = "",
    title: str | None = None,
) -> None:
    """One option a field. Defaults stay None here, so that what was not given can be told from what was."""
    hints = typing.get_type_hints(owner)
    group = parser.add_argument_group(title) if title else parser
    for f in fields:
        default = "" if f.default is None or f.default is dataclasses.MISSING else f" [{f.default}]"
        option = "--" + prefix + f.name.replace("_", "-")
        group.add_argument(option, type=hints[f.name] | None, default=None, help=f.metadata["help"] + default)


def _values(parser: ArgumentParser, words: list[str]) -> dict[str, Any]:
    parsed: Namespace = parser.parse_args(words)
    values: dict[str, Any] = parsed.as_dict()
    return values
