"""The paper's own numbers, as printed: every table of its text and supplement, from `published.json`.

Values are text, so that no digit is lost or added. They were measured with the paper's model on the paper's data: a
table that shows them beside ours says so. Tables are numbered in the order of the source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tasso.errors import DataError
from tasso.report.collect import Setting


@dataclass(frozen=True)
class PublishedRow:
    """`key` is the same in all tables that repeat a row. `bold` counts columns from 0."""

    key: str
    name: str
    values: tuple[str, ...]
    bold: frozenset[int] = frozenset()
    metric: str | None = None
    value: str | None = None
    bold_name: bool = False


@dataclass(frozen=True)
class PublishedTable:
    """`metric` is given where the whole table shows one; `number` is None for numbers that stand in the text."""

    key: str
    label: str
    number: str | None
    place: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    setting: Setting | None = None
    sequence: str | None = None
    metric: str | None = None

    def find(self, key: str, metric: str | None = None) -> PublishedRow | None:
        """The row of this key (and metric, in tables that have several), or None."""
        return next((row for row in self.rows if row.key == key and metric in (None, row.metric)), None)

    def text(self, row: str, column: str, metric: str | None = None) -> str | None:
        """A value as printed, or None where the paper has none."""
        found = self.find(row, metric)
        return None if found is None or column not in self.columns else found.values[self.columns.index(column)]

    def number_of(self, row: str, column: str, metric: str | None = None) -> float | None:
        """A value as a number, or None where the paper has none."""
        text = self.text(row, column, metric)
        return None if text is None else float(text.replace(",", "").rstrip("*"))

    @property
    def reference(self) -> str:
        """How a reader finds it."""
        return f"Table {self.number} ({self.label})" if self.number else f"{self.label} ({self.place})"


@dataclass(frozen=True)
class Contradiction:
    """Two places of the paper that cannot both be right: what one `says` and what the other `shows`."""

    key: str
    where: str
    says: str
    shows: str
    note: str


@dataclass(frozen=True)
class Published:
    """All of it."""

    paper: str
    benchmark: str
    model: str
    tables: tuple[PublishedTable, ...]
    contradictions: tuple[Contradiction, ...]

    def table(self, key: str) -> PublishedTable:
        for table in self.tables:
            if table.key == key:
                return table
        raise DataError(f"{key}: not a table of the paper. Known: {', '.join(table.key for table in self.tables)}")


@cache
def published() -> Published:
    """Read once from the package."""
    text = (files("tasso.report.paper") / "published.json").read_text(encoding="utf-8")
    return _parse(json.loads(text))


def _parse(document: Mapping[str, Any]) -> Published:
    tables = []
    for table in document["tables"]:
        rows = tuple(_row(row, f"{table['key']}: {row['key']}", len(table["columns"])) for row in table["rows"])
        tables.append(PublishedTable(**{**table, "columns": tuple(table["columns"]), "rows": rows}))
    contradictions = tuple(Contradiction(**item) for item in document["contradictions"])
    return Published(document["paper"], document["benchmark"], document["model"], tuple(tables), contradictions)


def _row(row: Mapping[str, Any], where: str, columns: int) -> PublishedRow:
    values = tuple(row["values"])
    if len(values) != columns:
        raise DataError(f"published.json: {where}: {len(values)} values for {columns} columns")
    return PublishedRow(**{**row, "values": values, "bold": frozenset(row.get("bold", ()))})
