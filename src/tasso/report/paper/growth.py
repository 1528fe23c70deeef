"""How methods fare as data grow: a table and a figure for each plan of the group `growth`, and one table over all."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from tasso.data.benchmarks import BENCHMARKS
from tasso.experiments.plans import Plan
from tasso.report.conclusion import conclude
from tasso.report.figures import draw
from tasso.report.figures.write import Figure, footnotes, save_figures
from tasso.report.folder import write_tables
from tasso.report.frame import SEEN, STEPS, accuracies, compare, labels, run_table, step_accuracies
from tasso.report.looks import looks
from tasso.report.page import write_page
from tasso.report.paper.evaluation import Evaluation
from tasso.report.reader import ReportError
from tasso.report.sections import Section, Shown
from tasso.report.tables import (
    ZERO_SHOT,
    Cell,
    Column,
    Metric,
    Row,
    Table,
    count_of,
    mean_cell,
    method_rows,
    or_none,
    rank,
    seed_notes,
)

AVERAGE = Metric("average", "Average", "up", "accuracy over all classes learned so far, the mean over the steps")
MEASURES = (
    AVERAGE,
    Metric("last", "Last", "up", "the same after the last step"),
    Metric("forgetting", "Forgetting", "down", "a task's accuracy when just learned less its worst later one (MCIL)"),
    Metric(
        "zero_shot_degradation", "Zero-shot degradation", "down",
        "the pretrained model's accuracy on a task less the worst before it was learned (MCIL)",
    ),
)  # fmt: skip
RANKING = "growth"
REPLAY = "GIFT's images come from the code that draws the tasks, which no generator could give it: it is not ranked."


def measures(frame: pd.DataFrame) -> pd.DataFrame:
    """`MEASURES` (columns) of every run, beside `label` and `seed`, from the steps that were evaluated.

    Where all were, these are the metrics of `results.json`: the incremental average and last of Seen, forgetting and
    zero-shot degradation of MCIL.
    """
    steps = step_accuracies(frame)[STEPS[0]]
    found = {}
    for run, by_step in accuracies(frame, "mcil").groupby("run", sort=False):
        start, matrix = by_step.to_numpy()[0], by_step.to_numpy()[1:]
        known, size = ~np.isnan(matrix).any(axis=1), len(start)
        lost = [matrix[k, k] - np.nanmin(matrix[k + 1 :, k]) for k in range(size - 1) if known[k]]
        before = [start[k] - np.nanmin(matrix[:k, k]) for k in range(1, size) if known[:k].any()]
        learned = steps.xs(run, level="run")
        values = (learned.mean(), learned.iloc[-1], *(fmean(some) if some else np.nan for some in (lost, before)))
        found[run] = dict(zip((metric.key for metric in MEASURES), values, strict=True))
    return run_table(frame)[["label", "seed"]].join(pd.DataFrame.from_dict(found, orient="index"))


def _zero_shot(frame: pd.DataFrame) -> pd.Series[float]:
    """Accuracy of the pretrained model over the classes of each step that was evaluated."""
    return step_accuracies(frame).dropna()[STEPS[1]].groupby("step").agg(fmean)


def _column(found: pd.DataFrame, names: Sequence[str], metric: Metric, replays: Container[str]) -> list[Cell]:
    """Mean ± standard deviation of each method, the best and the second marked; those that replay are not ranked."""
    cells = {name: mean_cell(found[found["label"] == name][metric.key]) for name in names}
    ranked = [name for name in names if name not in replays]
    marked, *_ = rank([cells[name] for name in ranked], ranked, [{}] * len(ranked), metric.better)
    return list({**cells, **dict(zip(ranked, marked, strict=True))}.values())


def growth_table(plan: Plan, evaluation: Evaluation) -> Table:
    """The methods on the benchmark of one plan."""
    frame = evaluation.labelled(plan)
    found, names = measures(frame), labels(frame)
    before = _zero_shot(frame)
    replays = evaluation.replays([plan])
    columns = [_column(found, names, metric, replays) for metric in MEASURES]
    rows = [Row((Cell(ZERO_SHOT), Cell(fmean(before)), Cell(before.iloc[-1]), Cell(None), Cell(None)))]
    rows += method_rows(names, columns)
    notes = [
        f"{'. '.join(f'{metric.name}: {metric.meaning}' for metric in MEASURES)}. In percent.",
        *seed_notes(found.groupby("label").size()),
    ]
    notes += [REPLAY] if replays else []
    if len(before) < len(frame["order"].iloc[0]):
        notes.append(
            f"Evaluated after {len(before)} of {len(frame['order'].iloc[0])} tasks: all values are from these."
        )
    if missing := evaluation.missing(plan.name)[0]:
        notes.append(f"{count_of(missing, 'run')} missing.")
    heads = [Column("Method", numeric=False), *(Column(metric.name, metric.better) for metric in MEASURES)]
    (comparison,) = compare(frame)
    return Table(f"{plan.title}, on {comparison.title}", tuple(heads), tuple(rows), tuple(notes))


def mean_ranks(means: pd.DataFrame, kinds: Sequence[str]) -> pd.Series[float]:
    """Mean rank of each method (row) over the kinds of growth, best first; benchmarks (columns) of one kind count as
    one. NaN for a method that lacks a benchmark."""
    by_kind = means.rank(ascending=False).T.groupby(list(kinds), sort=False).agg(lambda ranks: ranks.mean(skipna=False))
    return by_kind.mean(skipna=False).sort_values(kind="stable")


def ranking_table(plans: Sequence[Plan], evaluation: Evaluation) -> Table:
    """Which method for which growth: the average on each benchmark, and the mean of the ranks that follow from it."""
    frames = {plan.name: evaluation.labelled(plan) for plan in plans}
    by_plan = {plan: measures(frame) for plan, frame in frames.items()}
    means = pd.DataFrame({plan: found.groupby("label")[AVERAGE.key].mean() for plan, found in by_plan.items()})
    replays = evaluation.replays(plans)
    kinds = [plan.title.partition(":")[0] for plan in plans]
    ranks = mean_ranks(means.drop(index=[*replays]), kinds)
    names = [*map(str, ranks.index), *sorted(replays)]
    columns = [_column(found, names, AVERAGE, replays) for found in by_plan.values()]
    columns.append([Cell(or_none(ranks.get(name)), digits=1) for name in names])
    rows = [Row((Cell(ZERO_SHOT), *(Cell(fmean(_zero_shot(frame))) for frame in frames.values()), Cell(None)))]
    rows += method_rows(names, columns)
    heads = [Column("Method", numeric=False), *(Column(plan, "up") for plan in by_plan), Column("Mean rank", "down")]
    notes = [f"{AVERAGE.name}: {AVERAGE.meaning}. In percent."]
    notes += seed_notes(count for found in by_plan.values() for count in found.groupby("label").size())
    if len(set(kinds)) < len(kinds):
        notes.append("The mean rank is over the kinds of growth: benchmarks of one kind count as one.")
    notes += [REPLAY] if replays else []
    return Table(f"Which method for which growth? ({evaluation.model})", tuple(heads), tuple(rows), tuple(notes))


def growth_figure(plan: Plan, evaluation: Evaluation) -> Figure:
    """Accuracy over all classes learned so far; where tasks are domains with the same classes, also one panel each."""
    frame = evaluation.labelled(plan)
    (comparison,), shown = compare(frame), looks(frame)
    in_steps = "split_classes" in BENCHMARKS[plan.setup_at(evaluation.record.setup).benchmark].options
    return Figure(
        f"growth-{plan.name}",
        f"{plan.title}, on {comparison.title}: accuracy over all classes learned so far, from "
        f"{count_of(len(comparison.runs), 'run')}. Lines are means over seeds, bands reach from the lowest to the "
        f"highest seed. Dashed: the pretrained model.{footnotes(comparison.labels, shown)}",
        partial(draw.curves, comparison, SEEN, shown, with_tasks=not in_steps),
        "curves",
        comparison,
        SEEN,
    )


def with_runs(plans: Sequence[Plan], evaluation: Evaluation) -> Iterator[Plan]:
    """Those with a finished run."""
    return (plan for plan in plans if len(evaluation.runs(plan.name)))


def growth_tables(plans: Sequence[Plan], evaluation: Evaluation) -> dict[str, Table]:
    """By a name that a file can have: one table over all of these plans that were run, then one for each."""
    run = list(with_runs(plans, evaluation))
    if not run:
        raise ReportError("no run of these plans has finished yet")
    return {RANKING: ranking_table(run, evaluation), **{plan.name: growth_table(plan, evaluation) for plan in run}}


def write_growth(evaluation: Evaluation, out: Path, plans: Sequence[Plan], *, figures: bool = True) -> None:
    """Write the page (`index.html`), `tables/` and `figures/`."""
    tables = growth_tables(plans, evaluation)
    write_tables(tables, out)
    run = list(with_runs(plans, evaluation))
    if figures:
        save_figures([growth_figure(plan, evaluation) for plan in run], out / "figures")
    frame = pd.concat([evaluation.labelled(plan) for plan in run], ignore_index=True)
    write_page(
        frame,
        out / "index.html",
        title=f"Growing data, {evaluation.model}",
        intro="",
        sentence=conclude(evaluation.without_replays(frame, run)),
        sections=[Section(RANKING, "By kind of growth", [Shown(name, table) for name, table in tables.items()])],
        matrices_of=(),
        distances_of=(),
    )
