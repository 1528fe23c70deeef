"""Typed access to a JSON file that others may have written; every complaint names the file and the key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasso.errors import TassoError


class ReportError(TassoError):
    """Something a report was given cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Value:
    """A value of a JSON file and the keys that lead to it, such as `mtil.matrix[0]`."""

    file: Path
    value: Any
    key: str = ""

    def fail(self, problem: str) -> ReportError:
        return ReportError(f"{self.file}: {self.key}: {problem}")

    def expected(self, what: str) -> ReportError:
        return self.fail(f"expected {what}, found {kind(self.value)}")

    def __getitem__(self, name: str) -> Value:
        names = self.names()
        key = f"{self.key}.{name}".lstrip(".")
        if name not in names:
            raise ReportError(f"{self.file}: missing key {key!r}")
        return Value(self.file, self.value[name], key)

    def get(self, name: str) -> Value | None:
        """The value under a key that may be absent or null."""
        return None if self.value.get(name) is None else self[name]

    def names(self) -> list[str]:
        if not isinstance(self.value, dict):
            raise self.expected("an object")
        return list(self.value)

    def items(self) -> list[Value]:
        if not isinstance(self.value, list):
            raise self.expected("a list")
        return [Value(self.file, item, f"{self.key}[{index}]") for index, item in enumerate(self.value)]

    def text(self, what: str = "text") -> str:
        if not isinstance(self.value, str):
            raise self.expected(what)
        # JSON can contain half surrogate pairs, files and tables cannot.
        return self.value.encode("utf-8", "replace").decode("utf-8")

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def integer(self, what: str = "a whole number", least: int | None = None) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.expected(what)
        if least is not None and self.value < least:
            raise self.expected(f"at least {least}" if what == "a whole number" else what)
        return self.value

    def number(self, what: str = "a finite number") -> float:
        # Not isfinite: whole numbers of JSON may be larger than any fraction.
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not abs(self.value) <= 1e300:
            raise self.expected(what)
        return float(self.value)

    def optional_number(self, what: str = "a finite number or null") -> float | None:
        return None if self.value is None else self.number(what)


def kind(value: Any) -> str:
    """A JSON value in words short enough for an error message."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
