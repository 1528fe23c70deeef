"""What the commands share: parsers, options of a run, files of options, words that are lists."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from tasso.cli.parser import Parser
from tasso.config import RunConfig, from_dict, read_yaml
from tasso.errors import ConfigError

DEFAULT_METHOD = "tasso"


def add_after(parser: ArgumentParser) -> None:
    """Which model of a run."""
    words = "the model after this task: a name or a number, 0 before all [the latest]"
    parser.add_argument("--after", type=str | None, default=None, help=words)


def add_device(parser: ArgumentParser) -> None:
    """Where to compute."""
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N [auto]")


def split_words(text: str | None) -> tuple[str, ...] | None:
    """What stands between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text is not None else None


def numbers_in(text: str | None, where: str) -> tuple[int, ...] | None:
    """Whole numbers between commas; `where` is the option, for the error."""
    try:
        return tuple(map(int, split_words(text) or ())) or None
    except ValueError:
        raise ConfigError(f"{where}: expected whole numbers with commas, not {text!r}") from None


def parse_run_config(program: str, words: list[str]) -> RunConfig:
    """A RunConfig from the command line and the YAML files it names; unknown and ill-typed keys are errors.

    The method is looked up first, so that its own hyper-parameters are options too, with their types and help.
    """
    from tasso.methods import find_method, method_names

    files, words = _take_config_files([_method_word(word) for word in words])
    from_files: dict[str, Any] = {}
    for path in files:
        _merge(from_files, _from_file(path))
    name = chosen_method(words) or from_files.get("method", {}).get("name") or DEFAULT_METHOD
    parser = new_parser(program, "Learn a sequence of tasks. Every option may also stand in a YAML file (--config).")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file with options; repeatable")
    add_fields(parser, RunConfig, [f for f in dataclasses.fields(RunConfig) if f.name != "method"])
    choices = f"method: {', '.join(method_names())} or package.module:Class"
    parser.add_argument("--method.name", type=str | None, default=None, help=choices)
    cls = find_method(name)
    add_fields(parser, cls, list(dataclasses.fields(cls)), prefix="method.", title=f"method {name}")
    values = parsed(parser, words, flags=flags_of(RunConfig) + flags_of(cls, "method."))
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
            files.append(_config_file(next(remaining, "")))
        elif word.startswith("--config="):
            files.append(_config_file(word.removeprefix("--config=")))
        else:
            rest.append(word)
    return files, rest


def _config_file(word: str) -> Path:
    if not word or word.startswith("--"):
        raise ConfigError("config: expected a YAML file after --config")
    return Path(word)


def chosen_method(words: list[str]) -> str | None:
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


def flags_of(owner: Any, prefix: str = "") -> list[str]:
    """Options that are true or false."""
    hints = typing.get_type_hints(owner)
    return [f"--{prefix}{f.name.replace('_', '-')}" for f in dataclasses.fields(owner) if hints[f.name] is bool]


def new_parser(program: str, description: str) -> ArgumentParser:
    """A command's parser, without options."""
    return Parser(prog=program, description=description)


def add_fields(
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
        about = {"default": None, "help": f.metadata["help"] + default}
        if typing.get_origin(typing.get_args(hints[f.name] | None)[0]) is list:  # several words, and several times
            group.add_argument(option, type=str, nargs="+", action="append", **about)
        else:
            group.add_argument(option, type=hints[f.name] | None, **about)


def add_run_options(parser: ArgumentParser, names: Collection[str]) -> None:
    """Some of the options of a run."""
    add_fields(parser, RunConfig, [f for f in dataclasses.fields(RunConfig) if f.name in names])


def only_given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of these options that were given."""
    return {name: values[name] for name in names if values[name] is not None}


def parsed(parser: ArgumentParser, words: list[str], flags: Sequence[str] = ()) -> dict[str, Any]:
    """Parsed values. A flag may stand alone (`--overwrite`) or with a value (`--overwrite false`)."""
    following = [*words[1:], ""]
    words = [
        f"{word}=true" if word in flags and after.lower() not in ("true", "false") else word
        for word, after in zip(words, following, strict=False)
    ]
    namespace: Namespace = parser.parse_args(words)
    values: dict[str, Any] = namespace.as_dict()
    return values
