"""Tables of results, kept apart from the formats they are written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from tasso.report.collect import COST_FIELDS, ReportError, RunResult, Setting
from tasso.report.groups import Comparison, Group, compare

SETTING_NAMES: dict[Setting, str] = {"mtil": "MTIL", "mcil": "MCIL"}
SETTING_MEANINGS: dict[Setting, str] = {
    "mtil": "each image is scored against the classes of its own task",
    "mcil": "each image is scored against the classes of all tasks together",
}

Direction = Literal["up", "down"]
ZERO_SHOT = "Zero-shot"
DASH = "–"


@dataclass(frozen=True)
class Column:
    """`better` says which way is better. A column that is `implied` repeats the title: only CSV writes it."""

    name: str
    better: Direction | None = None
    numeric: bool = True
    implied: bool = False


@dataclass(frozen=True)
class Cell:
    """Text, a number, or nothing. `learned` marks the cell of the task that was learned in that row."""

    value: str | float | None
    spread: float | None = None
    digits: int = 2
    best: bool = False
    learned: bool = False

    @property
    def main(self) -> str:
        if self.value is None:
            return DASH
        return self.value if isinstance(self.value, str) else fixed(self.value, self.digits)

    @property
    def spread_text(self) -> str | None:
        return None if self.spread is None else fixed(self.spread, self.digits)

    @property
    def text(self) -> str:
        return self.main if self.spread is None else f"{self.main} ± {self.spread_text}"


@dataclass(frozen=True)
class Row:
    """`label` is the method the row is about (None: a reference row); `starts_block`: draw a rule above."""

    cells: tuple[Cell, ...]
    label: str | None = None
    starts_block: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def shown(self) -> Table:
        """The table without the columns that only repeat the title."""
        keep = [index for index, column in enumerate(self.columns) if not column.implied]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in keep),
            rows=tuple(replace(row, cells=tuple(row.cells[index] for index in keep)) for row in self.rows),
        )


@dataclass(frozen=True)
class Metric:
    """How a metric of `results.json` is shown."""

    key: str
    name: str
    better: Direction
    meaning: str


METRIC_COLUMNS = (
    Metric("accuracy", "Accuracy", "up", "mean accuracy over all tasks once every task has been learned"),
    Metric(
        "forgetting",
        "Forgetting",
        "down",
        "a task's accuracy when just learned less its worst later one",
    ),
    Metric(
        "zero_shot_degradation",
        "Zero-shot loss",
        "down",
        "the starting model's accuracy on a task less the worst before it was learned",
    ),
    Metric("transfer", "Transfer", "up", "mean accuracy on tasks before they are learned (ZSCL's)"),
    Metric("average", "Average", "up", "mean accuracy over all tasks and all steps (ZSCL's)"),
    Metric("last", "Last", "up", "ZSCL's name for the accuracy after the last task"),
)


def fixed(value: float, digits: int) -> str:
    """Fixed decimals, with no minus sign on a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def summary_table(runs: Sequence[RunResult], setting: Setting) -> Table:
    """One row per method (and benchmark, model and order, where several are given), mean ± std over seeds.

    Each comparison starts with the zero-shot accuracy of the starting model. The best method of each
    comparison is marked where there are at least two to choose from.
    """
    if not runs:
        raise ReportError("a summary needs at least one run")
    comparisons = compare(runs)
    rows: list[Row] = []
    for comparison in comparisons:
        rows += _comparison_rows(comparison, setting, starts_block=bool(rows))
    name = SETTING_NAMES[setting]
    same = _shared_fields(comparisons)
    where = ", ".join(text for text in same if text)
    return Table(
        title=f"{name} on {where}" if where else name,
        columns=(
            Column("Method", numeric=False),
            *(
                Column(column, numeric=False, implied=value is not None)
                for column, value in zip(("Benchmark", "Model", "Order"), same, strict=True)
            ),
            Column("Runs"),
            *(Column(metric.name, metric.better) for metric in METRIC_COLUMNS),
        ),
        rows=tuple(rows),
        notes=tuple(_summary_notes(comparisons, setting)),
    )


CORE_METRICS = METRIC_COLUMNS[:3]


def combined_table(runs: Sequence[RunResult]) -> Table:
    """The paper's three metrics in both settings side by side, for runs of one benchmark, model and order."""
    comparisons = compare(runs)
    if len(comparisons) != 1:
        raise ReportError("a combined table needs runs of one benchmark, model and order")
    comparison = comparisons[0]
    settings = tuple(SETTING_NAMES)
    columns = [(setting, metric) for setting in settings for metric in CORE_METRICS]
    numbers = [_metric_column(comparison.groups, setting, metric) for setting, metric in columns]
    zero_shot = [
        Cell(fmean(comparison.zero_shot(setting)) if metric.key == "accuracy" else None) for setting, metric in columns
    ]
    rows = [Row((Cell(ZERO_SHOT), *zero_shot))]
    for index, group in enumerate(comparison.groups):
        rows.append(Row((Cell(group.label), *(column[index] for column in numbers)), label=group.label))
    return Table(
        title=", ".join(text for text in _shared_fields(comparisons) if text),
        columns=(
            Column("Method", numeric=False),
            *(Column(f"{SETTING_NAMES[setting]} {metric.name.lower()}", metric.better) for setting, metric in columns),
        ),
        rows=tuple(rows),
        notes=tuple(f"{SETTING_NAMES[s]}: {SETTING_MEANINGS[s]}." for s in settings),
    )


def _shared_fields(comparisons: Sequence[Comparison]) -> tuple[str | None, str | None, str | None]:
    """Benchmark, model and order in words where all comparisons share them, else None."""

    def shared(values: set[str], prefix: str = "") -> str | None:
        if len(values) > 1:
            return None
        value = next(iter(values))
        return prefix + value if value else ""

    return (
        shared({comparison.benchmark for comparison in comparisons}),
        shared({comparison.model for comparison in comparisons}),
        shared({comparison.sequence for comparison in comparisons}, "order "),
    )


def _comparison_rows(comparison: Comparison, setting: Setting, *, starts_block: bool) -> list[Row]:
    where = (Cell(comparison.benchmark), Cell(comparison.model), Cell(comparison.sequence))
    zero_shot = Cell(fmean(comparison.zero_shot(setting)))
    others = (Cell(None),) * (len(METRIC_COLUMNS) - 1)
    rows = [Row((Cell(ZERO_SHOT), *where, Cell(None), zero_shot, *others), starts_block=starts_block)]
    columns = [_metric_column(comparison.groups, setting, metric) for metric in METRIC_COLUMNS]
    for index, group in enumerate(comparison.groups):
        numbers = tuple(column[index] for column in columns)
        count = Cell(len(group.finished), digits=0)
        rows.append(Row((Cell(group.label), *where, count, *numbers), label=group.label))
    return rows


def _metric_column(groups: Sequence[Group], setting: Setting, metric: Metric) -> list[Cell]:
    cells = []
    for group in groups:
        result = group.metric(setting, metric.key)
        cells.append(Cell(None) if result is None else Cell(result.mean, result.spread))
    # Compared as shown, so that two cells that read the same are both marked.
    numbers = [float(cell.main) for cell in cells if cell.value is not None]
    if len(numbers) < 2:
        return cells
    best = max(numbers) if metric.better == "up" else min(numbers)
    return [replace(cell, best=cell.value is not None and float(cell.main) == best) for cell in cells]


def _summary_notes(comparisons: Sequence[Comparison], setting: Setting) -> list[str]:
    groups = [group for comparison in comparisons for group in comparison.groups]
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. All values in percent."]
    counts = sorted({len(group.finished) for group in groups if len(group.finished) > 1})
    if counts:
        several = "n = " + " or ".join(str(count) for count in counts)
        notes.append(f"Mean ± sample standard deviation (n - 1) over {several} runs with different seeds.")
    if any(len(comparison.groups) > 1 for comparison in comparisons):
        notes.append("The best method of each column is marked; the zero-shot row is a reference.")
    for comparison in comparisons:
        where = f" on {comparison.name}" if len(comparisons) > 1 else ""
        for group in comparison.groups:
            notes += _group_notes(group, where)
    return notes


def _group_notes(group: Group, where: str) -> list[str]:
    notes = []
    left_out = len(group.runs) - len(group.finished)
    if left_out:
        notes.append(f"{group.label}{where}: {count_of(left_out, 'unfinished run')} left out.")
    seeds = Counter(run.seed for run in group.finished)
    twice = [str(seed) for seed, count in seeds.items() if count > 1]
    if twice:
        notes.append(f"{group.label}{where}: more than one run with seed {', '.join(twice)}.")
    return notes


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def matrix_table(run: RunResult, setting: Setting) -> Table:
    """Accuracy on every task (columns) at the start and after each learned task (rows)."""
    result = run.setting(setting)
    rows = [_matrix_row(ZERO_SHOT, result.zero_shot, None)]
    for index, values in enumerate(result.matrix):
        rows.append(_matrix_row(f"{index + 1}. {run.tasks[index]}", values, index))
    notes = ["Accuracy in percent. The marked cell of a row is the task learned in that step."]
    if not run.finished:
        notes.append(f"Unfinished run: {run.learned} of {count_of(len(run.tasks), 'task')} learned.")
    return Table(
        title=f"{run.label}, seed {run.seed}: {SETTING_NAMES[setting]} accuracy on {compare([run])[0].name}",
        columns=(Column("After task", numeric=False), *(Column(task) for task in run.tasks), Column("Mean")),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _matrix_row(name: str, values: Sequence[float], learned: int | None) -> Row:
    cells = (Cell(value, learned=index == learned) for index, value in enumerate(values))
    return Row((Cell(name), *cells, Cell(fmean(values))))


# Column name, how many of the stored unit make one of the shown unit, decimals; in COST_FIELDS' order.
_COST_COLUMNS = (
    ("Steps", 1.0, 0),
    ("Training (s)", 1.0, 1),
    ("Images per second", 1.0, 0),
    ("Peak memory (MiB)", 2.0**20, 1),
    ("Trained parameters (millions)", 1e6, 3),
    ("Evaluation (s)", 1.0, 1),
)


def cost_table(runs: Sequence[RunResult]) -> Table:
    """Time, speed and memory of every task of every run."""
    if not runs:
        raise ReportError("a cost table needs at least one run")
    comparisons = compare(runs)
    same = _shared_fields(comparisons)
    rows: list[Row] = []
    for comparison in comparisons:
        where = (Cell(comparison.benchmark), Cell(comparison.model), Cell(comparison.sequence))
        for run in comparison.runs:
            for index, cost in enumerate(run.costs):
                first = (Cell(run.label), *where, Cell(run.seed, digits=0), Cell(cost.task))
                stored = [getattr(cost, field) for field in COST_FIELDS]
                numbers = (
                    Cell(None if value is None else value / unit, digits=digits)
                    for value, (_, unit, digits) in zip(stored, _COST_COLUMNS, strict=True)
                )
                starts_block = index == 0 and bool(rows)
                rows.append(Row((*first, *numbers), label=run.label, starts_block=starts_block))
    where_text = ", ".join(text for text in same if text)
    return Table(
        title="Time and memory per task" + (f" on {where_text}" if where_text else ""),
        columns=(
            Column("Method", numeric=False),
            *(
                Column(column, numeric=False, implied=value is not None)
                for column, value in zip(("Benchmark", "Model", "Order"), same, strict=True)
            ),
            Column("Seed"),
            Column("Task", numeric=False),
            *(Column(name) for name, _, _ in _COST_COLUMNS),
        ),
        rows=tuple(rows),
    )
