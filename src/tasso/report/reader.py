"""Typed access to a JSON file that others may have written; every complaint names the file and the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tasso.errors import TassoError

T = TypeVar("T")


class ReportError(TassoError):
    """Something a report was given cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Reader:
    """Typed access to one JSON object; every complaint names the file and the key's full path."""

    file: Path
    content: Mapping[str, Any]
    where: str = ""

    def fail(self, key: str, problem: str) -> ReportError:
        return ReportError(f"{self.file}: {self.where}{key}: {problem}")

    def get(self, key: str) -> Any:
        if key not in self.content:
            raise ReportError(f"{self.file}: missing key {self.where + key!r}")
        return self.content[key]

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.fail(key, f"expected text, found {kind(value)}")
        return whole(value)

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, found {kind(value)}")
        return value

    def integer(self, key: str) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"expected a whole number, found {kind(value)}")
        return value

    def optional_number(self, key: str) -> float | None:
        value = self.get(key)
        if value is not None and not is_number(value):
            raise self.fail(key, f"expected a finite number or null, found {kind(value)}")
        return None if value is None else float(value)

    def items(self, key: str, parse: Callable[[str, Any], T]) -> tuple[T, ...]:
        value = self.get(key)
        if not isinstance(value, list):
            raise self.fail(key, f"expected a list, found {kind(value)}")
        return tuple(parse(f"{key}[{index}]", item) for index, item in enumerate(value))

    def number(self, key: str) -> float:
        return self._finite(key, self.get(key))

    def numbers(self, key: str) -> tuple[float, ...]:
        return self.items(key, self._finite)

    def _finite(self, key: str, value: Any) -> float:
        if not is_number(value):
            raise self.fail(key, f"expected a finite number, found {kind(value)}")
        return float(value)

    def inner(self, key: str, value: Any) -> Reader:
        if not isinstance(value, dict):
            raise self.fail(key, f"expected an object, found {kind(value)}")
        return Reader(self.file, value, f"{self.where}{key}.")


def whole(text: str) -> str:
    """The text with ? in the place of half surrogate pairs: JSON can contain them, files and tables cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_number(value: Any) -> bool:
    # Not isfinite: whole numbers of JSON may be larger than any fraction.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def kind(value: Any) -> str:
    """A JSON value in words short enough for an error message."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
