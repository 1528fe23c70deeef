"""What the commands share: options of a run from the command line and from YAML files, lists with commas."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasso.cli.methods import known_names, own_facts
from tasso.cli.parser import Parser
from tasso.config import (
    AUTO,
    DEFAULT_METHOD,
    OWN_TASKS_METHOD,
    SCOPES,
    RunConfig,
    default_method,
    from_dict,
    options_of,
)
from tasso.config.task_specs import absolute
from tasso.errors import ConfigError, no_such
from tasso.files import read_yaml

SHOWN_METHOD = f"{DEFAULT_METHOD}; {OWN_TASKS_METHOD} for own tasks"


def add_after(parser: Parser) -> None:
    """Which model of a run."""
    text = "the model after this task: a name or a number, 0 before all tasks"
    parser.option("--after", str, text, shown="the latest", metavar="TASK")


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


def add_run_options(parser: Parser, command: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> None:
    """The options of a run that this command takes, in a group per scope. `--method` is added by those that want it.

    Args:
        defaults: what holds where an option is not given, if it is not what the option declares.
    """
    names = options_of(RunConfig, command=command).keys() - {"method"}
    for scope in SCOPES:
        add_options(
            parser, RunConfig, names & options_of(RunConfig, scope=scope).keys(), group=scope, defaults=defaults
        )


def add_options(
    parser: Parser,
    owner: type,
    names: typing.Collection[str],
    group: str,
    prefix: str = "",
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """One option per field. Defaults stay None here, so that what was given can be told from what was not."""
    hints, options = typing.get_type_hints(owner), options_of(owner)
    for field in dataclasses.fields(owner):
        if field.name in names:
            option = options[field.name]
            shown = str(defaults.get(field.name, "")) or unset_default(owner, field) or shown_default(field.default)
            shown = f"{AUTO}: {shown}" if field.default == AUTO != shown else shown
            parser.option(
                f"--{prefix}{field.name.replace('_', '-')}", hints[field.name], option.help, shown=shown,
                metavar=option.metavar, group=group,
            )  # fmt: skip


def add_method(parser: Parser, default: str = DEFAULT_METHOD) -> None:
    """Which method; `default` for the help."""
    text = f"{', '.join(known_names())} or package.module:Class"
    parser.option("--method", str, text, shown=default, metavar="NAME", group="method")


def add_own_method(parser: Parser) -> None:
    """`--method` of a command that opens a run: a file may name any code, so the user names it, too."""
    text = "if RUN was learned by a method of your own: that method. It is imported only if it is named here"
    parser.option("--method", str, text, metavar="PACKAGE.MODULE:CLASS")


def import_own(names: str | None) -> None:
    """Import those methods of these, with commas, that are `package.module:Class`."""
    for name in [name for name in split_commas(names) or () if ":" in name]:
        from tasso.methods import import_method

        import_method(name)


def import_method_of_run(values: Mapping[str, Any]) -> None:
    """Import what `--method` names, of a command that opens a run."""
    if known := [name for name in split_commas(values["method"]) or () if ":" not in name]:
        raise ConfigError(
            f"method: {known[0]!r}: a run names the methods of tasso and of installed packages itself; here only a "
            "method of your own is named, as package.module:Class"
        )
    import_own(values["method"])


def own_method(name: str) -> str:
    """What a command that opens a run needs besides if it was learned by this method."""
    return f" --method {name}" if ":" in name else ""


def unset_default(owner: type, field: dataclasses.Field[Any]) -> str:
    """What holds for an option without a default of its own: the protocols' values, or what it declares."""
    if field.default is not None:
        return ""
    protocols = getattr(owner, "protocols", {})
    values = [f"{values[field.name]} ({name})" for name, values in protocols.items() if field.name in values]
    return ", ".join(values) or options_of(owner)[field.name].unset


def shown_default(value: Any) -> str:
    """A default as it is typed."""
    if value in (None, dataclasses.MISSING):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def given_options(values: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Those options of a run that were given to this command."""
    return {key: values[key] for key in options_of(RunConfig, command=command) if values.get(key) is not None}


def parse_run_config(program: str, args: list[str], does: str = "Learn a sequence of tasks.") -> RunConfig:
    """A RunConfig from the command line and the YAML files it names; unknown and ill-typed keys are errors.

    Files and method are looked up first: files come before all other arguments, wherever they stand, and the method's
    hyper-parameters are options too, with their types and help. `does` is what the program does, for its help.
    """
    from tasso.methods import find_method
    from tasso.methods.defaults import shown_defaults

    merged, name = _look_up(program, args)
    if _gives("--method", args):
        import_own(name)
    cls = find_method(name)

    parser = Parser(program, f"{does} Every option may also stand in a YAML file (--config).")
    _add_config_and_method(parser)
    shown = shown_defaults(cls)
    add_run_options(parser, "run", shown)
    title = f"method {name} (another: {program} --method NAME --help)"
    hyper = {key.removeprefix("method."): text for key, text in shown.items() if key.startswith("method.")}
    add_options(parser, cls, options_of(cls), group=title, prefix="method.", defaults=hyper)
    values = parser.parse(args)
    hyper_parameters = {
        key.removeprefix("method."): value
        for key, value in values.items()
        if key.startswith("method.") and value is not None
    }
    _merge(merged, {**given_options({**values, "method": None}, "run"), "method": {"name": name, **hyper_parameters}})
    return from_dict(merged, _where(program))


def check_early(program: str, args: list[str]) -> None:
    """Raise what can be said about a run without torch: unknown and ill-typed options, an unknown method or task, a
    missing folder. Values of the method's options are checked later."""
    if {"-h", "--help"} & set(args):
        return
    merged, name = _look_up(program, args)
    if name not in (names := known_names()) and ":" not in name:
        raise ConfigError(f"method: {no_such('method', name, names)}")
    if name not in (facts_of := own_facts()):
        return
    parser = Parser(program)
    _add_config_and_method(parser)
    add_run_options(parser, "run")
    for key, option in facts_of[name]["options"].items():
        kind = bool if isinstance(option["default"], bool) else str
        parser.option(f"--method.{key.replace('_', '-')}", kind, option["help"])
    values = parser.parse(args)
    config = from_dict({**merged, **given_options({**values, "method": None}, "run"), "method": name}, _where(program))
    from tasso.data import task_order
    from tasso.data.readers import check_places

    learned = task_order(config)
    if not config.out.exists():  # a finished run needs its images no more
        check_places(spec for spec in absolute(config.tasks or ()) if spec["name"] in learned)


def names_model(program: str, args: list[str]) -> bool:
    """Do the arguments, or the files that they name, say which model?"""
    merged, _ = _look_up(program, args)
    return "model" in merged or _gives("--model", args)


def _gives(option: str, args: list[str]) -> bool:
    return any(arg.partition("=")[0] == option for arg in args)


def _where(program: str) -> str:
    """The place of an error about options: `tasso:` is said already."""
    return program.removeprefix("tasso ")


def _look_up(program: str, args: list[str]) -> tuple[dict[str, Any], str]:
    """What the files say that the arguments name, and the name of the method."""
    parser = Parser(program)
    _add_config_and_method(parser)
    add_options(parser, RunConfig, {"tasks"}, group="data")
    found, _ = parser.parse_known([arg for arg in args if arg not in ("-h", "--help")])
    merged: dict[str, Any] = {}
    for path in itertools.chain(*found["config"] or ()):
        _merge(merged, _from_file(Path(path)))
    default = default_method({**merged, **given_options(found, "run")})
    return merged, found["method"] or merged.get("method", {}).get("name") or default


def _add_config_and_method(parser: Parser) -> None:
    parser.option("--config", list[str], "YAML file with options; repeatable, later files win", metavar="FILE")
    add_method(parser, SHOWN_METHOD)


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
