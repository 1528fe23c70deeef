"""Tables: queries on the table of results, separate from the formats they are written in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

import pandas as pd

from tasso.evaluation.metrics import incremental
from tasso.report.frame import (
    COSTS,
    SEEN,
    Comparison,
    Orders,
    Setting,
    accuracies,
    by_tasks,
    compare,
    costs,
    finished_metrics,
    run_table,
    settings_of,
    step_accuracies,
    steps_in_words,
    zero_shot,
    zero_shot_accuracy,
)
from tasso.report.reader import ReportError
from tasso.report.significance import LEVEL, Key, PairedTest, describe_tests, paired_test

SETTING_NAMES: dict[Setting, str] = {"mtil": "MTIL", "mcil": "MCIL", "seen": "Seen"}
SETTING_MEANINGS: dict[Setting, str] = {
    "mtil": "each image is scored against the classes of its own task",
    "mcil": "each image is scored against the classes of all tasks together",
    "seen": "each image is scored against the classes learned so far, one of a task not yet learned against its own",
}

Direction = Literal["up", "down"]
ZERO_SHOT = "Zero-shot"
DASH = "–"
SIGNIFICANT = "†"


@dataclass(frozen=True)
class Column:
    """`better` says which way is better, `setting` which it is about, if one. Only CSV writes a column that is
    `implied`: it repeats the title.

    One that stands `apart` has numbers from elsewhere, which are not to be compared with those beside it.
    """

    name: str
    better: Direction | None = None
    numeric: bool = True
    implied: bool = False
    apart: bool = False
    setting: Setting | None = None


@dataclass(frozen=True)
class Cell:
    """Text, a number, or nothing. `learned` marks the cell of the task that was learned in that row.

    `best` and `second` are the ranks in a column; `p` is that of the paired test of the best against the second.
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
    Metric("forgetting", "Forgetting", "down", "a task's accuracy when just learned less its worst later one"),
    Metric(
        "zero_shot_degradation",
        "Zero-shot degradation",
        "down",
        "the pretrained model's accuracy on a task less the worst before it was learned",
    ),
    Metric("transfer", "Transfer", "up", "mean accuracy on tasks before they are learned (ZSCL's)"),
    Metric("average", "Average", "up", "mean accuracy over all tasks and all steps (ZSCL's)"),
    Metric("last", "Last", "up", "ZSCL's name for the accuracy after the last task"),
)
SEEN_COLUMNS = (
    Metric("seen_average", "Seen average", "up", "mean accuracy on tasks once they are learned (CoLeCLIP's)"),
    Metric(
        "incremental_average",
        "Incremental average",
        "up",
        "accuracy over all images of the classes learned so far, the mean over the steps (class-incremental Avg)",
    ),
    Metric("incremental_last", "Incremental last", "up", "the same after the last step (class-incremental Last)"),
)


def metric_columns(setting: Setting) -> tuple[Metric, ...]:
    """The metrics of a setting."""
    return (*METRIC_COLUMNS, *SEEN_COLUMNS) if setting == SEEN else METRIC_COLUMNS


def fixed(value: float, digits: int) -> str:
    """Fixed decimals, with no minus sign on a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def mean_cell(values: Iterable[float], digits: int = 2) -> Cell:
    """Mean and, of several values, sample standard deviation (n - 1); empty without values or with a NaN among them."""
    numbers = list(values)
    if not numbers or any(map(math.isnan, numbers)):
        return Cell(None)
    return Cell(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, digits)


def seed_notes(counts: Iterable[int]) -> list[str]:
    """What a table with means over these numbers of seeds says about them."""
    several = sorted(set(counts))
    if several == [1]:
        return ["One seed: differences smaller than the spread over seeds mean nothing."]
    over = " or ".join(map(str, several))
    return [f"Mean ± sample standard deviation (n - 1) over {over} seeds."] if several else []


CORE_METRICS = METRIC_COLUMNS[:3]


def method_rows(names: Iterable[str], columns: Iterable[list[Cell]], about: tuple[str, str] = ("", "")) -> list[Row]:
    """One row per method, from columns of cells."""
    return [Row((Cell(name), *cells), label=name, about=about) for name, *cells in zip(names, *columns, strict=True)]


def summary_table(frame: pd.DataFrame, setting: Setting) -> Table:
    """One row per method (and benchmark, model and order, where several are given), mean ± std over seeds.

    Each comparison starts with the zero-shot accuracy of the pretrained model. The best method of each
    comparison is marked where there are at least two to choose from.
    """
    if frame.empty:
        raise ReportError("a summary needs at least one run")
    comparisons = compare(frame)
    rows: list[Row] = []
    tests: list[tuple[str, PairedTest]] = []
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. All values in percent."]
    counts: set[int] = set()
    shown = metric_columns(setting)
    notes.append("; ".join(f"{metric.name}: {metric.meaning}" for metric in shown[len(CORE_METRICS) :]) + ".")
    for comparison in comparisons:
        found = finished_metrics(comparison.frame, setting)
        where = (Cell(comparison.benchmark), Cell(comparison.model), Cell(comparison.sequence))
        about = (comparison.benchmark, comparison.order)
        start = zero_shot_cells(comparison.frame, setting, shown)
        rows.append(Row((Cell(ZERO_SHOT), *where, Cell(None), *start), starts_block=bool(rows), about=about))
        columns, tested = zip(*(_column(found, comparison.labels, metric) for metric in shown), strict=True)
        for label, *numbers in zip(comparison.labels, *columns, strict=True):
            count = int((found["label"] == label).sum())
            counts.add(count)
            rows.append(Row((Cell(label), *where, Cell(count, digits=0), *numbers), label=label, about=about))
        prefix = f"{comparison.name}, " if len(comparisons) > 1 else ""
        # Not for "last": it is the accuracy under ZSCL's name.
        named = zip(shown, tested, strict=True)
        tests += [(prefix + metric.name, test) for metric, test in named if test and metric.key != "last"]
    if several := " or ".join(str(count) for count in sorted(counts) if count > 1):
        notes.append(f"Mean ± sample standard deviation (n - 1) over n = {several} runs.")
    most = max(len(comparison.labels) for comparison in comparisons)
    if most > 1:
        second = ", and the runner-up" if most > 2 else ""
        notes.append(f"The best method of each column is marked{second}; the zero-shot row is a reference.")
    if len({steps_in_words(comparison.frame) for comparison in comparisons}) > 1:
        notes.append(f"Steps differ: {'; '.join(comparison.title for comparison in comparisons)}.")
    for comparison in comparisons:
        notes += _run_notes(comparison, f" on {comparison.name}" if len(comparisons) > 1 else "")
    name = SETTING_NAMES[setting]
    where_text, where_columns = _where(comparisons)
    return Table(
        title=f"{name} on {where_text}" if where_text else name,
        columns=(
            Column("Method", numeric=False),
            *where_columns,
            Column("Runs"),
            *(Column(metric.name, metric.better) for metric in shown),
        ),
        rows=tuple(rows),
        notes=(*notes, *describe_tests(tests)),
    )


def zero_shot_cells(frame: pd.DataFrame, setting: Setting, metrics: Sequence[Metric]) -> list[Cell]:
    """What the pretrained model has of these metrics. As in the peers' tables, transfer, average and last are those of
    a matrix with its row after every task; of Seen, whose classes grow, those over the classes of each step."""
    accuracy = zero_shot_accuracy(frame, setting)
    known: dict[str, float | None] = {"accuracy": accuracy, "last": accuracy}
    if setting == SEEN:
        steps = step_accuracies(frame)["steps_zero_shot"].groupby("step").agg(fmean)
        known |= incremental(list(steps)) if len(steps) else {}
    else:
        later = zero_shot(frame, setting)[1:]  # the first task has no step before it
        known |= {"transfer": fmean(later) if len(later) else None, "average": accuracy}
    return [Cell(or_none(known.get(metric.key))) for metric in metrics]


def _run_notes(comparison: Comparison, where: str) -> list[str]:
    notes = []
    for label, runs in comparison.runs.groupby("label", sort=False):
        if left_out := int((~runs["finished"]).sum()):
            notes.append(f"{label}{where}: {count_of(left_out, 'unfinished run')} left out.")
        seeds = runs[runs["finished"]]["seed"]
        if twice := [str(seed) for seed in seeds[seeds.duplicated()].unique()]:
            notes.append(f"{label}{where}: more than one run with seed {', '.join(twice)}.")
    return notes


def combined_table(frame: pd.DataFrame) -> Table:
    """The paper's three metrics in all settings side by side, for runs of one benchmark, model and set of tasks. Of
    the classes learned so far it has the two of class-incremental learning.

    Of several orders, the mean over them; a method that lacks one has none.
    """
    groups = by_tasks(compare(frame))
    if len(groups) != 1:
        raise ReportError("a combined table needs runs of one benchmark, model and set of tasks")
    (orders,) = groups
    columns, start, tests, means = [Column("Method", numeric=False)], list[Cell](), [], []
    settings = settings_of(frame)
    for setting in settings:
        metrics = SEEN_COLUMNS[1:] if setting == SEEN else CORE_METRICS
        start += zero_shot_cells(frame, setting, metrics)
        for metric in metrics:
            name = metric.name if setting == SEEN else f"{SETTING_NAMES[setting]} {metric.name.lower()}"
            columns.append(Column(name, metric.better, setting=setting))
            cells, test = order_means(orders, setting, metric)
            means.append(cells)
            tests += [(name, test)] if test else []
    about = (orders.benchmark, orders.order)
    rows = method_rows(orders.labels, means, about)
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}." for setting in settings]
    if len(orders.comparisons) > 1:
        notes.append(f"Means over {len(orders.comparisons)} orders of the tasks.")
        notes += _without_mean(row.cells[0].main for row in rows if row.cells[1].value is None)
    elif any(cell.spread is not None for cells in means for cell in cells):
        notes.append("Mean ± sample standard deviation (n - 1) over seeds.")
    return Table(
        title=orders.title,
        columns=tuple(columns),
        rows=(Row((Cell(ZERO_SHOT), *start), about=about), *rows),
        notes=(*notes, *describe_tests(tests)),
    )


def order_means(orders: Orders, setting: Setting, metric: Metric) -> tuple[list[Cell], PairedTest | None]:
    """A metric of each method, the mean over the orders, the best marked and tested; of a single order with its spread.

    A method that lacks an order has no mean: it would be that of other tasks than the others'.
    """
    found = finished_metrics(orders.frame, setting)
    names = orders.labels
    if len(orders.comparisons) == 1:
        return _column(found, names, metric)
    mine = [found[found["label"] == label] for label in names]
    by_order = [rows.groupby(["sequence", "order"])[metric.key].agg(fmean) for rows in mine]
    means = [mean_cell(values if len(values) == len(orders.comparisons) else ()) for values in by_order]
    samples = [_sample(rows, metric) for rows in mine]
    return rank([replace(cell, spread=None) for cell in means], names, samples, metric.better)


def _without_mean(names: Iterable[str]) -> list[str]:
    missing = ", ".join(names)
    return [f"No mean, because a finished run of an order is missing: {missing}."] if missing else []


def _where(comparisons: Sequence[Comparison]) -> tuple[str, list[Column]]:
    """What all comparisons share, in words, and columns for benchmark, model and order: implied where they share it."""
    texts, columns = [], []
    for name, field in (("Benchmark", "benchmark"), ("Model", "model"), ("Order", "sequence")):
        values = {getattr(comparison, field) for comparison in comparisons}
        columns.append(Column(name, numeric=False, implied=len(values) == 1))
        if len(values) == 1 and (value := values.pop()):
            texts.append(f"order {value}" if field == "sequence" else value)
    steps = steps_in_words(pd.concat([comparison.frame for comparison in comparisons]))
    return ", ".join([*texts, *filter(None, [steps])]), columns


def _column(found: pd.DataFrame, names: Sequence[str], metric: Metric) -> tuple[list[Cell], PairedTest | None]:
    """One metric of each method, the best marked and tested against the runner-up."""
    mine = [found[found["label"] == label] for label in names]
    cells = [mean_cell(rows[metric.key]) for rows in mine]
    return rank(cells, names, [_sample(rows, metric) for rows in mine], metric.better)


def _sample(found: pd.DataFrame, metric: Metric) -> dict[Key, float]:
    """The metric by order and seed; repeats of one are averaged, so that none counts twice."""
    measured = found[found[metric.key].notna()]
    return dict(measured.groupby(["order_name", "seed"], sort=False)[metric.key].agg(fmean))


def rank(
    cells: Sequence[Cell], labels: Sequence[str], samples: Sequence[Mapping[Key, float]], better: Direction
) -> tuple[list[Cell], PairedTest | None]:
    """Mark the best and the runner-up of a column, and test one against the other.

    Args:
        cells: the column, one cell per method.
        labels: the methods.
        samples: what each cell is the mean of, by order and seed.
    """

    # Compared as shown, so that two cells that read the same are both marked.
    def shown(cell: Cell) -> float:
        return float(cell.main) if better == "up" else -float(cell.main)

    ranked = [number for number, cell in enumerate(cells) if cell.value is not None]
    if len(ranked) < 2:
        return list(cells), None
    values = sorted({shown(cells[number]) for number in ranked}, reverse=True)
    first, second = ([n for n in ranked if shown(cells[n]) == value] for value in (values * 2)[:2])
    several = len(ranked) > 2  # of two, the other one needs no mark
    marked = [
        replace(cell, best=number in first, second=several and number in second and number not in first)
        for number, cell in enumerate(cells)
    ]
    if len(first) != 1:  # level with each other: none is ahead
        return marked, None
    test = paired_test(labels[first[0]], samples[first[0]], labels[second[0]], samples[second[0]], better)
    marked[first[0]] = replace(marked[first[0]], p=test.p if test.ahead else None)
    return marked, test


def order_table(orders: Orders, setting: Setting, key: str = "accuracy") -> Table:
    """One metric of every method (rows) in every order of the same tasks (columns), and the mean over the orders."""
    metric = next(metric for metric in metric_columns(setting) if metric.key == key)
    names = orders.labels
    found = finished_metrics(orders.frame, setting)
    columns, tests = [], []
    for comparison in orders.comparisons:
        here = found[(found["order"] == comparison.tasks) & (found["sequence"] == comparison.sequence)]
        cells, test = _column(here, names, metric)
        columns.append(cells)
        tests += [(comparison.order, test)] if test and test.p is not None else []
    means, test = order_means(orders, setting, metric)
    tests += [("mean", test)] if test else []
    counts = sorted({int((found["label"] == label).sum()) for label in names})
    notes = [
        f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. {metric.name}: {metric.meaning}. In percent.",
        f"Runs per method, all orders together: {' or '.join(map(str, counts))}.",
    ]
    notes += _without_mean(label for label, mean in zip(names, means, strict=True) if mean.value is None)
    return Table(
        title=f"{SETTING_NAMES[setting]} {metric.name.lower()} on {orders.title}",
        columns=(
            Column("Method", numeric=False),
            *(Column(comparison.order, metric.better) for comparison in orders.comparisons),
            Column("Mean", metric.better),
        ),
        rows=tuple(method_rows(names, [*columns, means], (orders.benchmark, ""))),
        notes=(*notes, *describe_tests(tests)),
    )


def matrix_table(rows: pd.DataFrame, setting: Setting) -> Table:
    """Accuracy of one run on every task (columns) at the start and after each learned task (rows)."""
    (run,) = run_table(rows).itertuples()
    lines = []
    for step, values in enumerate(accuracies(rows, setting).itertuples(index=False)):
        name = f"{step}. {run.order[step - 1]}" if step else ZERO_SHOT
        cells = [Cell(or_none(value), learned=task == step) for task, value in enumerate(values, 1)]
        lines.append(Row((Cell(name), *cells, Cell(or_none(fmean(values))))))
    notes = ["Accuracy in percent. The marked cell of a row is the task learned in that step."]
    if not run.finished:
        notes.append(f"Unfinished run: {run.learned} of {count_of(len(run.order), 'task')} learned.")
    (comparison,) = compare(rows)
    return Table(
        title=f"{run.label}, seed {run.seed}: {SETTING_NAMES[setting]} accuracy on {comparison.title}",
        columns=(Column("After task", numeric=False), *(Column(task) for task in run.order), Column("Mean")),
        rows=tuple(lines),
        notes=tuple(notes),
    )


def or_none(value: float | None) -> float | None:
    """The value of a cell: nothing for NaN."""
    return None if value is None or math.isnan(value) else float(value)


# Column name, how many of the stored unit make one of the shown unit, decimals; in the order of COSTS.
_COST_COLUMNS = (
    ("Steps", 1.0, 0),
    ("Training (s)", 1.0, 1),
    ("Images per second", 1.0, 0),
    ("Peak memory (MiB)", 2.0**20, 1),
    ("Peak memory of the process (MiB)", 2.0**20, 1),
    ("Trained parameters (millions)", 1e6, 3),
    ("Preparation (s)", 1.0, 1),
    ("Evaluation (s)", 1.0, 1),
)


def cost_table(frame: pd.DataFrame) -> Table:
    """Time, speed and memory of every task of every run."""
    if frame.empty:
        raise ReportError("a cost table needs at least one run")
    comparisons = compare(frame)
    rows: list[Row] = []
    for comparison in comparisons:
        where = (Cell(comparison.benchmark), Cell(comparison.model), Cell(comparison.sequence))
        found = costs(comparison.frame)
        for label in comparison.labels:  # repeats of a method stand together
            for (_, step), cost in found[found["label"] == label].iterrows():
                numbers = (
                    Cell(or_none(cost[name] / unit), digits=digits)
                    for name, (_, unit, digits) in zip(COSTS, _COST_COLUMNS, strict=True)
                )
                first = (Cell(label), *where, Cell(cost["seed"], digits=0), Cell(cost["task"]))
                about = (comparison.benchmark, comparison.order)
                starts_block = step == 1 and bool(rows)
                rows.append(Row((*first, *numbers), label=label, starts_block=starts_block, about=about))
    where_text, where_columns = _where(comparisons)
    return Table(
        title="Time and memory per task" + (f" on {where_text}" if where_text else ""),
        columns=(
            Column("Method", numeric=False),
            *where_columns,
            Column("Seed"),
            Column("Task", numeric=False),
            *(Column(name) for name, _, _ in _COST_COLUMNS),
        ),
        rows=tuple(rows),
    )
