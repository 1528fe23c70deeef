"""The paper's own numbers, as printed: every table of its text and supplement, from `published.json`.

Values are text, so that no digit is lost or added. They were measured with the paper's model on the paper's data: a
table that shows them beside ours says so. Tables are numbered as in the paper's source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from tasso.experiments.plans import DISTANCES, PLANS, TASSO, PlanRow
from tasso.report.frame import Setting
from tasso.report.tables import CORE_METRICS

CORE = tuple(metric.key for metric in CORE_METRICS)  # columns of the paper's tables


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
    """All of it; tables by key."""

    paper: str
    benchmark: str
    model: str
    tables: dict[str, PublishedTable]
    contradictions: tuple[Contradiction, ...]


def printed_tables(plan: str, setting: Setting) -> tuple[PublishedTable, ...]:
    """The paper's tables of a plan in a setting, the first of which names the source; () where it has none."""
    keys: tuple[str, ...] = ()
    if plan in ("main", "components", "rank", "alpha", "beta"):
        keys = (f"{plan}-{setting}",)
    elif setting == "mtil":  # TASSO itself stands in a table beside that of the undivided embedding
        keys = {"whole-kd": ("undivided", "optimisation"), "optimisation": ("optimisation",)}.get(plan, ())
    return tuple(published().tables[key] for key in keys)


def printed_row(plan: str, row: PlanRow, setting: Setting) -> PublishedRow | None:
    """What the paper prints for a row of an ablation on S1, or None."""
    found = (table.find(row.printed) for table in printed_tables(plan, setting))
    return next((one for one in found if one is not None), None)


def printed(plan: str, label: str, setting: Setting, metric: str) -> Decimal | None:
    """What the paper prints for a row of a plan: on S1, or the mean over sequences in the main tables."""
    row = next(row for row in PLANS[plan].rows if row.label == label)
    text: str | None = None
    if plan == "main":
        text = published().tables[f"main-{setting}"].text(row.printed, "Mean", metric)
    elif plan == "distances" and setting == "mtil":
        outside, inside = (DISTANCES[row.cells[part]] for part in ("f⊥", "f∥"))
        text = published().tables[f"kd-grid-{metric}"].text(outside, inside)
    elif plan == "seeds" and setting == "mtil":  # seven seeds of TASSO, a single run of SnD
        seeds, main = published().tables["seeds"], published().tables["main-mtil"]
        text = seeds.text("mean", metric) if row == TASSO else main.text(row.printed, "S1", metric)
    elif (found := printed_row(plan, row, setting)) is not None:
        text = found.values[CORE.index(metric)]
    return None if text is None else Decimal(text)


@cache
def published() -> Published:
    """Read once from the package."""
    text = (files("tasso.report.paper") / "published.json").read_text(encoding="utf-8")
    return _parse(json.loads(text))


def _parse(document: Mapping[str, Any]) -> Published:
    tables = {}
    for table in document["tables"]:
        rows = tuple(
            PublishedRow(**{**row, "values": tuple(row["values"]), "bold": frozenset(row.get("bold", ()))})
            for row in table["rows"]
        )
        tables[table["key"]] = PublishedTable(**{**table, "columns": tuple(table["columns"]), "rows": rows})
    contradictions = tuple(Contradiction(**item) for item in document["contradictions"])
    return Published(**{**document, "tables": tables, "contradictions": contradictions})
