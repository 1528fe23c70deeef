"""The parser of all commands: help with real defaults and choices, errors as in the rest of tasso."""

from __future__ import annotations

import re
import sys
import typing
from argparse import Action
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from tasso.cli.exit_codes import USER
from tasso.config import choices_of

KINDS = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text", "Path": "a path"}
METAVARS = {int: "N", float: "X", bool: "{true,false}", Path: "PATH", str: "TEXT"}


class HelpFormatter(DefaultHelpFormatter):
    """Choices or a short name for each value, defaults in brackets; no Python types."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)  # type: ignore[no-untyped-call]

    def add_usage(self, usage: str | None, actions: Iterable[Action], *args: Any, **kwargs: Any) -> None:
        """Positional arguments only: there are too many options to read them here."""
        forms = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}
        names = {action.dest.upper(): str(action.nargs) for action in actions if not action.option_strings}
        parts = [forms.get(count, "{}").format(name) for name, count in names.items()]
        super().add_usage(" ".join(["%(prog)s", *parts, "[options]"]), actions, *args, **kwargs)

    def _metavar_formatter(self, action: Action, default_metavar: str) -> Any:
        hint = _hints(action)[0]
        if not action.option_strings:
            name = action.dest.upper()
        elif choices := choices_of(hint):
            name = "{" + ",".join(choices) + "}"
        else:
            name = METAVARS.get(hint) or str(action.metavar or "VALUE")
        return lambda count: (name,) * count

    def _format_action_invocation(self, action: Action) -> str:
        return super()._format_action_invocation(action).replace("--method.name", "--method")  # the short form

    def _get_help_string(self, action: Action) -> str:
        text = action.help or ""
        if action.required and action.option_strings:
            return f"{text} (required)"
        if not action.option_strings or not isinstance(action.default, str | int | float | Path) or action.help is None:
            return text
        default = str(action.default).lower() if isinstance(action.default, bool) else str(action.default)
        return text if default == "==SUPPRESS==" else f"{text} [{default}]"


class Parser(ArgumentParser):
    """jsonargparse's, with errors in one line."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, formatter_class=HelpFormatter)

    def parse(self, args: list[str]) -> dict[str, Any]:
        """Parsed values. A flag may stand alone (`--overwrite`) or with a value (`--overwrite false`)."""
        flags = {name for action in self._actions if bool in _hints(action) for name in action.option_strings}
        following = [*args[1:], ""]
        args = [
            f"{arg}=true" if arg in flags and after.lower() not in ("true", "false") else arg
            for arg, after in zip(args, following, strict=False)
        ]
        values: dict[str, Any] = self.parse_args(args).as_dict()
        return values

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End the program as for any other error of the user."""
        print(f"tasso: {complaint(message)}. {self.prog} --help lists the options", file=sys.stderr)
        sys.exit(USER)


def _hints(action: Action) -> list[Any]:
    """The types of an option's value, without None."""
    hint = getattr(action, "_typehint", None)
    parts = typing.get_args(hint) if hint is not None and typing.get_origin(hint) is not typing.Literal else ()
    return [part for part in parts if part is not type(None)] or [hint or action.type or str]


def complaint(message: str) -> str:
    """jsonargparse describes values by Python types: say it as the rest of tasso does. Other messages stay."""
    message = message.strip().removeprefix("error:").strip()
    key = re.match(r'Parser key "([^"]+)":', message)
    given = re.search(r"(?:Given value|Got value): (.*)\Z", message, re.DOTALL)
    if not key or not given:
        return " ".join(message.split()).rstrip(".")
    expected = " or ".join(dict.fromkeys(_expected(message))) or "another value"
    return f"{key[1]}: expected {expected}, not {given[1].strip()!r}"


def _expected(message: str) -> list[str]:
    found: list[str] = []
    for line in re.findall(r"Expected a (.*)", message):
        if match := re.match(r"typing\.Literal\[([^\]]*)\]", line):
            found.append("one of " + match[1].replace("'", ""))
        elif match := re.match(r"tuple with (\d+)", line):
            found.append(f"{match[1]} values")
        elif (match := re.match(r"<class '(?:[\w.]+\.)?(\w+)'>", line)) and match[1] in KINDS:
            found.append(KINDS[match[1]])
    return found
