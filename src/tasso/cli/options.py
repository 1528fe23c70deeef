"""What the commands share: options of a run from the command line and from YAML files, lists with commas."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasso.cli.parser import Parser
from tasso.config import SCOPES, RunConfig, from_dict, options_of
from tasso.errors import ConfigError
from tasso.files import read_yaml

DEFAULT_METHOD = "tasso"


def add_after(parser: Parser) -> None:
    """Which model of a run."""
    text = "the model after this task: a name or a number, 0 before all tasks [the latest]"
    parser.add_argument("--after", type=str | None, default=None, help=text)


def add_device(parser: Parser) -> None:
    """Where to compute."""
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N")


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """The parts between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text is not None else None


def split_integers(text: str | None, where: str) -> tuple[int, ...] | None:
    """Whole numbers between commas; `where` is the option, for the error."""
    try:
        return tuple(map(int, split_commas(text) or ())) or None
    except ValueError:
        raise ConfigError(f"{where}: expected whole numbers with commas, not {text!r}") from None


# -- options of a run --------------------------------------------------------------------------------------------


def add_run_options(parser: Parser, command: str) -> None:
    """The options of a run that this command takes, in a group per scope. `--method` is added by those that want it."""
    names = options_of(RunConfig, command=command).keys() - {"method"}
    for scope in SCOPES:
        add_options(parser, RunConfig, names & options_of(RunConfig, scope=scope).keys(), title=scope)


def add_options(parser: Parser, owner: type, names: typing.Collection[str], title: str, prefix: str = "") -> None:
    """One option per field. Defaults stay None here, so that what was given can be told from what was not."""
    hints = typing.get_type_hints(owner)
    group = parser.add_argument_group(title) if names else None
    for field in dataclasses.fields(owner):
        if group is None or field.name not in names:
            continue
        option = options_of(owner)[field.name]
        default = option.unset if field.default in (None, dataclasses.MISSING) else shown_default(field.default)
        help = option.help + (f" [{default}]" if default else "")
        flag = f"--{prefix}{field.name.replace('_', '-')}"
        if field.name == "tasks":  # several arguments, and several times
            group.add_argument(flag, type=str, nargs="+", action="append", default=None, help=help)
        else:
            group.add_argument(flag, type=hints[field.name] | None, default=None, help=help)


def shown_default(value: Any) -> str:
    """A default as a YAML file would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def given_options(values: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Those options of a run that were given to this command."""
    return {key: values[key] for key in options_of(RunConfig, command=command) if values.get(key) is not None}


def parse_run_config(program: str, args: list[str]) -> RunConfig:
    """A RunConfig from the command line and the YAML files it names; unknown and ill-typed keys are errors.

    The method is looked up first, so that its hyper-parameters are options too, with their types and help.
    """
    from tasso.methods import find_method, method_names

    files, args = _take_config_files([_long_method(arg) for arg in args])
    merged: dict[str, Any] = {}
    for path in files:
        _merge(merged, _from_file(path))
    name = _method_name(args) or merged.get("method", {}).get("name") or DEFAULT_METHOD
    parser = Parser(program, "Learn a sequence of tasks. Every option may also stand in a YAML file (--config).")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file with options; repeatable")
    choices = f"{', '.join(method_names())} or package.module:Class [{DEFAULT_METHOD}]"
    parser.add_argument("--method.name", type=str | None, default=None, help=choices)
    add_run_options(parser, "run")
    cls = find_method(name)
    add_options(parser, cls, options_of(cls), title=f"method {name}", prefix="method.")
    values = parser.parse(args)
    hyper_parameters = {key: value for key, value in values["method"].items() if value is not None}
    _merge(merged, {**given_options({**values, "method": None}, "run"), "method": hyper_parameters})
    merged["method"] = {"name": name, **merged["method"]}
    return from_dict(merged, program)


def _long_method(arg: str) -> str:
    """`--method tasso` is short for `--method.name tasso`."""
    if arg == "--method" or arg.startswith("--method="):
        return arg.replace("--method", "--method.name", 1)
    return arg


def _take_config_files(args: list[str]) -> tuple[list[Path], list[str]]:
    """The YAML files that the arguments name, and the other arguments: files come first, wherever they stand."""
    files, rest = [], []
    remaining = iter(args)
    for arg in remaining:
        if arg == "--config":
            files.append(_config_file(next(remaining, "")))
        elif arg.startswith("--config="):
            files.append(_config_file(arg.removeprefix("--config=")))
        else:
            rest.append(arg)
    return files, rest


def _config_file(arg: str) -> Path:
    if not arg or arg.startswith("--"):
        raise ConfigError("config: expected a YAML file after --config")
    return Path(arg)


def _method_name(args: list[str]) -> str | None:
    """The method that the arguments ask for, before anything else is parsed; the last one wins."""
    name = None
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        if arg == "--method.name":
            name = following
        elif arg.startswith("--method.name="):
            name = arg.removeprefix("--method.name=")
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
