"""What others published on the benchmarks, from `peers.json`: with its source, and whether it was checked.

These numbers were measured by their authors on their own data. They have tables of their own, whose titles say so, and
are never in a table, a mean or a test with ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from tasso.report.frame import Setting
from tasso.report.tables import METRIC_COLUMNS, SEEN_COLUMNS, SETTING_NAMES, Cell, Column, Row, Table

WHOSE = "paper, its own data"
SHOWN = [metric for metric in (*METRIC_COLUMNS, *SEEN_COLUMNS) if metric.key != "accuracy"]


@dataclass(frozen=True)
class PeerRow:
    """One method on one benchmark in one order, in percent.

    Attributes:
        checked: was it compared with the authors' files? Else it is from memory.
        means: by metric.
        tasks: by metric, where they are known per task.
    """

    benchmark: str
    order: str
    method: str
    setting: Setting
    source: str
    checked: bool
    means: dict[str, float]
    tasks: dict[str, dict[str, float]]


def peer_rows(benchmark: str) -> list[PeerRow]:
    """The rows of a benchmark, in the order of the file."""
    return [row for row in _rows() if row.benchmark == benchmark]


def zero_shot_of(benchmark: str, model: str) -> PeerRow | None:
    """The zero-shot row of this model per task, if one was published."""
    same_model = model == _document()["model"]
    rows = (row for row in peer_rows(benchmark) if "zero_shot" in row.tasks)
    return next(rows, None) if same_model else None


def peer_tables(frame: pd.DataFrame) -> dict[str, Table]:
    """A table per benchmark of these runs on which others have published, by its name."""
    benchmarks = [name for name in dict.fromkeys(frame["benchmark"]) if peer_rows(name)]
    return {f"published-{name}": peer_table(name) for name in benchmarks}


def peer_table(benchmark: str) -> Table:
    """What others published on a benchmark."""
    rows = peer_rows(benchmark)
    metrics = [metric for metric in SHOWN if any(metric.key in row.means for row in rows)]
    setting = SETTING_NAMES[rows[0].setting]
    return Table(
        title=f"Published on {benchmark}, {setting} ({WHOSE})",
        columns=(
            Column("Method", numeric=False),
            Column("Order", numeric=False),
            *(Column(metric.name, metric.better, apart=True) for metric in metrics),
            Column("Source", numeric=False),
            Column("Checked", numeric=False),
        ),
        rows=tuple(
            Row((
                Cell(row.method),
                Cell(row.order),
                *(Cell(row.means.get(metric.key)) for metric in metrics),
                Cell(row.source),
                Cell("yes" if row.checked else "no"),
            ))
            for row in rows
        ),
        notes=(
            f"Measured by others with {_document()['model']} on their own data: {WHOSE}. In percent.",
            "Checked: compared with the authors' files. The others are from memory and may be wrong.",
        ),
    )  # fmt: skip


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((files("tasso.report") / "peers.json").read_text(encoding="utf-8"))
    return document


@cache
def _rows() -> tuple[PeerRow, ...]:
    found = []
    for row in _document()["rows"]:
        metrics = row["metrics"]
        means = {name: values["mean"] for name, values in metrics.items()}
        tasks = {name: values["tasks"] for name, values in metrics.items() if "tasks" in values}
        about = {key: row[key] for key in ("benchmark", "order", "method", "setting", "source", "checked")}
        found.append(PeerRow(**about, means=means, tasks=tasks))
    return tuple(found)
