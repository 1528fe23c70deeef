"""The parser of all commands. It complains as the rest of tasso does: the key, what was expected, what was given."""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from tasso.cli.endings import USER

KINDS = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text", "Path": "a path"}


class Parser(ArgumentParser):
    """jsonargparse's, with errors in one line."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End the program as for any other error of the user."""
        print(f"tasso: {complaint(message)}. {self.prog} --help lists the options", file=sys.stderr)
        sys.exit(USER)


def complaint(message: str) -> str:
    """jsonargparse's words about a value are about Python's types; others are taken as they are."""
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
        words: Any
        if words := re.match(r"typing\.Literal\[([^\]]*)\]", line):
            found.append("one of " + words[1].replace("'", ""))
        elif words := re.match(r"tuple with (\d+)", line):
            found.append(f"{words[1]} values")
        elif (words := re.match(r"<class '(?:[\w.]+\.)?(\w+)'>", line)) and words[1] in KINDS:
            found.append(KINDS[words[1]])
    return found
