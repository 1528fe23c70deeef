"""The parser of all commands: argparse, told what an option is by its type and its default, as options of a run are."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from tasso.config import alternatives, choices_of, parse_text
from tasso.errors import ConfigError, did_you_mean

WIDTH = 100
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
REPEATED = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}


class Parser(argparse.ArgumentParser):
    """Arguments of one command. What cannot be parsed is a `ConfigError`, as every other error of the user."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [options]",
            description=description,
            formatter_class=HelpFormatter,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self.groups: dict[str, argparse._ArgumentGroup] = {}
        self.flags: dict[str, str] = {}  # options without a value, and how each is switched off or on
        self.positional: dict[str, str] = {}  # and how each stands in the usage
        self.elsewhere: dict[str, str] = {}  # options that this command has not, and why
        self.group("arguments")
        self.group("options").add_argument("-h", "--help", action="help", help="show this help")

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Options under a heading; made where it is not there yet."""
        if title not in self.groups:
            self.groups[title] = self.add_argument_group(title)
        return self.groups[title]

    def argument(self, name: str, kind: Any, help: str, *, metavar: str = "", count: str | None = None) -> None:
        """A positional argument.

        Args:
            count: as argparse's `nargs`.
        """
        metavar = metavar or name.upper()
        self.positional[name] = REPEATED.get(count or "", "{}").format(metavar)
        self.usage = " ".join([self.prog, *self.positional.values(), "[options]"])
        self.group("arguments").add_argument(
            name, type=partial(_value, kind=kind), nargs=count, metavar=metavar, help=_escaped(help)
        )

    def option(
        self,
        name: str,
        kind: Any,
        help: str,
        default: Any = None,
        *,
        shown: str = "",
        metavar: str = "",
        group: str = "options",
        required: bool = False,
    ) -> None:
        """An option.

        Args:
            name: as it is typed, with its dashes.
            kind: its type. `bool`: a flag `--name`, and `--no-name`; help shows the one that changes the default. A
                list: several values, and several times.
            shown: the default in help, where it is not `default`.
        """
        if kind is bool:
            self._flag(name, help, default, on=shown == "true" or default is True, group=group)
            return
        kinds = [part for part in alternatives(kind) if part is not NoneType]
        several = any(part is list or getattr(part, "__origin__", None) is list for part in kinds)
        shown = shown or ("" if default is None or default == [] else str(default))
        choices = choices_of(kind)
        self.group(group).add_argument(
            name,
            type=str if several else partial(_value, kind=kind),
            default=default,
            required=required,
            metavar=metavar or (f"{{{','.join(choices)}}}" if choices else METAVARS.get(kinds[0], "X,X")),
            help=_escaped(help + (" (required)" if required else f" [{shown}]" if shown else "")),
            **({"nargs": "+", "action": "append"} if several else {}),
        )

    def _flag(self, name: str, help: str, default: bool | None, on: bool, group: str) -> None:
        dest, opposite = name.lstrip("-").replace("-", "_"), _opposite(name)
        self.flags |= {name: opposite, opposite: name}
        for flag, action, hidden in ((name, "store_true", on), (opposite, "store_false", not on)):
            text = argparse.SUPPRESS if hidden else _escaped(f"do not {help}" if on else help)
            self.group(group).add_argument(flag, dest=dest, action=action, default=default, help=text)

    def parse(self, args: list[str]) -> dict[str, Any]:
        """Values by name, with underscores."""
        for arg, after in pairwise([*args, ""]):
            name, sign, _ = arg.partition("=")
            if name in self.flags and (sign or after.lower() in ("true", "false")):
                self.error(f"{name}: takes no value. Its opposite is {self.flags[name]}")
        found, unknown = self.parse_known(args)
        if unknown:
            self.error(self._unexpected(unknown))
        return found

    def parse_known(self, args: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Values by name, and the arguments that belong to none."""
        try:
            found, unknown = self.parse_known_args(args)
        except argparse.ArgumentError as error:
            self.error(f"{error.argument_name}: {error.message}" if error.argument_name else error.message)
        return vars(found), unknown

    def _unexpected(self, unknown: list[str]) -> str:
        option = next((arg.partition("=")[0] for arg in unknown if arg.startswith("-")), None)
        if option is None:
            return f"{unknown[0]!r} is one argument too many"
        if option.lstrip("-") in self.positional:
            return f"no option {option}: it is {self.usage}"
        if why := self.elsewhere.get(option.partition(".")[0]):  # --method of --method.rank
            return f"no option {option}: {why}"
        return f"no option {option}." + did_you_mean(option, self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """End the command as every other error does."""
        end = "" if message.endswith(("?", ".")) else "."
        raise ConfigError(f"{message}{end} {self.prog} --help lists the options")


class HelpFormatter(argparse.HelpFormatter):
    """As wide as the terminal, up to a limit, and no break within `local-dir:FOLDER`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(shutil.get_terminal_size().columns, WIDTH))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def _value(text: str, kind: Any) -> Any:
    try:
        return parse_text(text, kind)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _opposite(flag: str) -> str:
    """`--no-x` of `--x`, `--method.no-x` of `--method.x`."""
    place, dot, name = flag.removeprefix("--").rpartition(".")
    return f"--{place}{dot}no-{name}"


def _escaped(help: str) -> str:
    """argparse formats help with %."""
    return help.replace("%", "%%")
