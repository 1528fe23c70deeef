"""The paper's figures, and a few more of the same runs. All other runs are rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from tasso.experiments.plans import PLANS, SND, TASSO, Plan
from tasso.report.figures.write import Figure, of_distances, of_run, save_figures, task_curves, trade_offs
from tasso.report.frame import by_tasks, compare, run_table
from tasso.report.looks import looks
from tasso.report.paper.evaluation import Evaluation
from tasso.report.templates import slug

FOLDER = "figures"


def shown_runs(evaluation: Evaluation, plans: Sequence[Plan] = tuple(PLANS.values())) -> pd.DataFrame:
    """The runs that a page draws, labelled as rows of tables: those of the first of these plans that has any, and
    beside the main tables TASSO on both towers, which has their sequences and seeds."""
    measured = [plan for plan in plans if len(evaluation.runs(plan.name))]
    if not measured:
        return evaluation.frame.iloc[:0]
    shown = evaluation.labelled(measured[0])
    for plan in measured[1:]:
        if {measured[0].name, plan.name} == {"main", "both-towers"}:
            further = evaluation.labelled(plan)
            shown = pd.concat([shown, further[~further["label"].isin(shown["label"])]])
    return shown


def first_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the runs that are drawn one by one: of the first sequence, S1 as in the paper."""
    return compare(frame)[0].frame if len(frame) else frame


def draw_figures(plans: Sequence[Plan], evaluation: Evaluation, out: Path) -> dict[str, list[Figure]]:
    """Draw what these plans show into `figures`, and return it by plan; what belongs to two plans is drawn once."""
    by_plan = {plan.name: list(_figures(plan, evaluation)) for plan in plans}
    save_figures(
        list({figure.name: figure for several in by_plan.values() for figure in several}.values()), out / FOLDER
    )
    return by_plan


def _figures(plan: Plan, evaluation: Evaluation) -> Iterator[Figure]:
    if plan.name == "main" and len(evaluation.runs("main")):
        # The means over all sequences; accuracies over the first one, and one matrix per method.
        shown = evaluation.labelled(plan)
        look, comparisons = looks(shown), compare(shown)
        for orders in by_tasks(comparisons):
            yield from trade_offs(orders, slug(f"{orders.benchmark} {orders.order}"), look)
        yield from task_curves(comparisons[0], slug(f"{orders.benchmark} {comparisons[0].order}"), look)
        for label in comparisons[0].labels:
            yield from _matrix(comparisons[0].of(label))
    elif plan.name == "matrices":
        for run in evaluation.runs(plan.name, TASSO.label)["run"]:
            yield from _matrix(evaluation.rows_of([run]).assign(label=TASSO.label))
    elif plan.name == "alignment":
        yield from _alignment(evaluation)


def _matrix(frame: pd.DataFrame) -> Iterator[Figure]:
    """The matrices of the first run."""
    run = run_table(frame).iloc[0]
    comparison = compare(frame)[0]
    name = f"matrix-{slug(run['label'])}-{slug(comparison.order)}-{run['seed']}"
    yield from of_run(comparison, str(run.name), name)


def _alignment(evaluation: Evaluation) -> Iterator[Figure]:
    """TASSO against SnD after the last task of S1, with the seeds that both have."""
    seeds = set(evaluation.closer("images").index)
    runs = evaluation.texts[evaluation.texts["seed"].isin(seeds)].drop_duplicates("run")
    pair = (TASSO.label, SND.label)
    if not seeds:
        return
    frame = evaluation.rows_of([run for row in pair for run in runs[runs["row"] == row]["run"]])
    frame = frame.assign(label=frame["run"].map(dict(zip(runs["run"], runs["row"], strict=True))))
    (comparison,) = compare(frame)
    yield from of_distances(comparison, pair, slug(f"{comparison.benchmark} {comparison.order}"), looks(frame))
