"""Tables of results, kept apart from the formats they are written in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from tasso.report.collect import COST_FIELDS, ReportError, RunResult, Setting
from tasso.report.groups import Comparison, Group, Orders, compare
from tasso.report.significance import LEVEL, Key, Paired, by_pair, describe_tests, paired_test

SETTING_NAMES: dict[Setting, str] = {"mtil": "MTIL", "mcil": "MCIL"}
SETTING_MEANINGS: dict[Setting, str] = {
    "mtil": "each image is scored against the classes of its own task",
    "mcil": "each image is scored against the classes of all tasks together",
}

Direction = Literal["up", "down"]
ZERO_SHOT = "Zero-shot"
DASH = "–"
SIGNIFICANT = "†"


@dataclass(frozen=True)
class Column:
    """`better` says which way is better. A column that is `implied` repeats the title: only CSV writes it.

    One that stands `apart` has numbers from elsewhere, which are not to be compared with those beside it.
    """

    name: str
    better: Direction | None = None
    numeric: bool = True
    implied: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Cell:
    """Text, a number, or nothing. `learned` marks the cell of the task that was learned in that row.

    `best` and `second` are the places in a column; `p` is that of the paired test of the best against the second.
    """

    value: str | float | None
    spread: float | None = None
    digits: int = 2
    best: bool = False
    learned: bool = False
    second: bool = False
    p: float | None = None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < LEVEL

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
        whole = self.main if self.spread is None else f"{self.main} ± {self.spread_text}"
        return f"{whole} {SIGNIFICANT}" if self.significant else whole


@dataclass(frozen=True)
class Row:
    """`label` is the method the row is about (None: a reference row); `starts_block`: draw a rule above."""

    cells: tuple[Cell, ...]
    label: str | None = None
    starts_block: bool = False
    # Benchmark and order, so that a page can show and hide rows; an empty word means all of them.
    about: tuple[str, str] = ("", "")


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
    tests: list[tuple[str, Paired]] = []
    for comparison in comparisons:
        more, tested = _comparison_rows(comparison, setting, starts_block=bool(rows))
        where = f"{comparison.name}, " if len(comparisons) > 1 else ""
        rows += more
        tests += [(where + column, test) for column, test in tested]
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
        notes=(*_summary_notes(comparisons, setting), *describe_tests(tests)),
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
    ranked = [_metric_column(comparison.groups, setting, metric) for setting, metric in columns]
    numbers = [column for column, _ in ranked]
    names = [f"{SETTING_NAMES[setting]} {metric.name.lower()}" for setting, metric in columns]
    tests = [(name, test) for name, (_, test) in zip(names, ranked, strict=True) if test]
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
            *(Column(name, metric.better) for name, (_, metric) in zip(names, columns, strict=True)),
        ),
        rows=tuple(rows),
        notes=(*(f"{SETTING_NAMES[s]}: {SETTING_MEANINGS[s]}." for s in settings), *describe_tests(tests)),
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


def _comparison_rows(
    comparison: Comparison, setting: Setting, *, starts_block: bool
) -> tuple[list[Row], list[tuple[str, Paired]]]:
    where = (Cell(comparison.benchmark), Cell(comparison.model), Cell(comparison.sequence))
    zero_shot = Cell(fmean(comparison.zero_shot(setting)))
    others = (Cell(None),) * (len(METRIC_COLUMNS) - 1)
    about = (comparison.benchmark, comparison.order)
    rows = [Row((Cell(ZERO_SHOT), *where, Cell(None), zero_shot, *others), starts_block=starts_block, about=about)]
    ranked = [_metric_column(comparison.groups, setting, metric) for metric in METRIC_COLUMNS]
    columns = [column for column, _ in ranked]
    for index, group in enumerate(comparison.groups):
        numbers = tuple(column[index] for column in columns)
        count = Cell(len(group.finished), digits=0)
        rows.append(Row((Cell(group.label), *where, count, *numbers), label=group.label, about=about))
    # Once for accuracy: "last" is the same number under ZSCL's name.
    tests = [(metric.name, test) for metric, (_, test) in zip(METRIC_COLUMNS, ranked, strict=True) if test]
    return rows, [(name, test) for name, test in tests if name != "Last"]


def _metric_column(groups: Sequence[Group], setting: Setting, metric: Metric) -> tuple[list[Cell], Paired | None]:
    cells = []
    for group in groups:
        result = group.metric(setting, metric.key)
        cells.append(Cell(None) if result is None else Cell(result.mean, result.spread))
    samples = [_sample(group.finished, setting, metric) for group in groups]
    return rank(cells, [group.label for group in groups], samples, metric.better)


def _sample(runs: Sequence[RunResult], setting: Setting, metric: Metric) -> dict[Key, float]:
    """The metric of each run, by the order of its tasks and its seed."""
    values = [(run, run.setting(setting).metrics[metric.key]) for run in runs]
    return by_pair([((run.order, run.seed), value) for run, value in values if value is not None])


def rank(
    cells: Sequence[Cell], labels: Sequence[str], samples: Sequence[Mapping[Key, float]], better: Direction
) -> tuple[list[Cell], Paired | None]:
    """Mark the best and the runner-up of a column, and test one against the other.

    Args:
        cells: the column, one cell a method.
        labels: the methods.
        samples: what each cell is the mean of, by order and seed.
    """

    # Compared as shown, so that two cells that read the same are both marked.
    def shown(cell: Cell) -> float:
        return float(cell.main) if better == "up" else -float(cell.main)

    there = [number for number, cell in enumerate(cells) if cell.value is not None]
    if len(there) < 2:
        return list(cells), None
    places = sorted({shown(cells[number]) for number in there}, reverse=True)
    first, second = ([n for n in there if shown(cells[n]) == place] for place in (places * 2)[:2])
    several = len(there) > 2  # of two, the other one needs no mark
    marked = [
        replace(cell, best=number in first, second=several and number in second and number not in first)
        for number, cell in enumerate(cells)
    ]
    if len(first) != 1:  # level with each other: nobody is ahead
        return marked, None
    test = paired_test(labels[first[0]], samples[first[0]], labels[second[0]], samples[second[0]], better)
    marked[first[0]] = replace(marked[first[0]], p=test.p if test.ahead else None)
    return marked, test


def order_table(orders: Orders, setting: Setting, key: str = "accuracy") -> Table:
    """One metric of every method (rows) in every order of the same tasks (columns), and the mean over the orders.

    A method that lacks an order has no mean: it would be that of other tasks than the others'.
    """
    metric = next(metric for metric in METRIC_COLUMNS if metric.key == key)
    labels = list(dict.fromkeys(group.label for comparison in orders.comparisons for group in comparison.groups))
    grid: list[list[Cell]] = [[] for _ in labels]
    tests: list[tuple[str, Paired]] = []
    for comparison in orders.comparisons:
        groups = {group.label: group for group in comparison.groups}
        column, test = _metric_column([groups.get(label, Group(label, ())) for label in labels], setting, metric)
        for cells, cell in zip(grid, column, strict=True):
            cells.append(cell)
        if test and test.p is not None:
            tests.append((comparison.order, test))
    whole = [all(cell.value is not None for cell in cells) for cells in grid]
    runs = [[run for run in orders.runs if run.label == label and run.finished] for label in labels]
    samples = [_sample(mine, setting, metric) for mine in runs]
    means = [
        Cell(fmean(float(cell.value) for cell in cells if cell.value is not None)) if complete else Cell(None)
        for cells, complete in zip(grid, whole, strict=True)
    ]
    means, test = rank(means, labels, samples, metric.better)
    if test:
        tests.append(("mean", test))
    counts = sorted({len(mine) for mine in runs})
    notes = [
        f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. {metric.name}: {metric.meaning}. In percent.",
        f"Runs a method, all orders together: {' or '.join(map(str, counts))}.",
    ]
    if missing := [label for label, complete in zip(labels, whole, strict=True) if not complete]:
        notes.append(f"No mean, because a finished run of an order is missing: {', '.join(missing)}.")
    return Table(
        title=f"{SETTING_NAMES[setting]} {metric.name.lower()} on {orders.name}",
        columns=(
            Column("Method", numeric=False),
            *(Column(comparison.order, metric.better) for comparison in orders.comparisons),
            Column("Mean", metric.better),
        ),
        rows=tuple(
            Row((Cell(label), *cells, mean), label=label, about=(orders.benchmark, ""))
            for label, cells, mean in zip(labels, grid, means, strict=True)
        ),
        notes=(*notes, *describe_tests(tests)),
    )


def _summary_notes(comparisons: Sequence[Comparison], setting: Setting) -> list[str]:
    groups = [group for comparison in comparisons for group in comparison.groups]
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. All values in percent."]
    counts = sorted({len(group.finished) for group in groups if len(group.finished) > 1})
    if counts:
        several = "n = " + " or ".join(str(count) for count in counts)
        notes.append(f"Mean ± sample standard deviation (n - 1) over {several} runs with different seeds.")
    if any(len(comparison.groups) > 1 for comparison in comparisons):
        second = ", and the runner-up" if any(len(comparison.groups) > 2 for comparison in comparisons) else ""
        notes.append(f"The best method of each column is marked{second}; the zero-shot row is a reference.")
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
    cells = (Cell(_known(value), learned=index == learned) for index, value in enumerate(values))
    return Row((Cell(name), *cells, Cell(_known(fmean(values)))))


def _known(value: float) -> float | None:
    """NaN is nothing to show: an extended run whose early models were gone."""
    return None if math.isnan(value) else value


# Column name, how many of the stored unit make one of the shown unit, decimals; in COST_FIELDS' order.
_COST_COLUMNS = (
    ("Steps", 1.0, 0),
    ("Training (s)", 1.0, 1),
    ("Images per second", 1.0, 0),
    ("Peak memory (MiB)", 2.0**20, 1),
    ("Trained parameters (millions)", 1e6, 3),
    ("Making ready (s)", 1.0, 1),
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
                about = (comparison.benchmark, comparison.order)
                rows.append(Row((*first, *numbers), label=run.label, starts_block=starts_block, about=about))
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
