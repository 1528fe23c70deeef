"""The main tables: eight methods, eight sequences."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tasso.experiments.plans import Plan
from tasso.report.collect import SETTINGS, Setting
from tasso.report.paper.evidence import Evidence, pair
from tasso.report.paper.published import Published
from tasso.report.paper.tables.cells import (
    METRICS,
    PAPER,
    Tables,
    as_printed,
    best_marked,
    difference_columns,
    mean_over_seeds,
    mean_over_sequences,
    missing_notes,
    paper_notes,
    printed_cell,
    seed_notes,
    slug,
    where,
)
from tasso.report.tables import (
    SETTING_MEANINGS,
    SETTING_NAMES,
    ZERO_SHOT,
    Cell,
    Column,
    Metric,
    Row,
    Table,
    count_of,
    fixed,
)


def main_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """One table a setting and metric, then the paper's own two."""
    tables: Tables = {}
    for setting in SETTINGS:
        for metric in METRICS:
            tables[f"main-{setting}-{slug(metric.key)}"] = _main_table(plan, evidence, published, setting, metric)
    for setting in SETTINGS:
        tables[f"paper-main-{setting}"] = as_printed(published.table(f"main-{setting}"))
    return tables


def _main_table(plan: Plan, evidence: Evidence, published: Published, setting: Setting, metric: Metric) -> Table:
    """One metric in one setting: methods in rows, sequences in columns, then their mean and the paper's.

    A single sequence needs no mean, and stands beside the same one of the paper, if the paper has it.
    """
    printed = published.table(f"main-{setting}")
    sequences = plan.sequences_at(evidence.setup)
    values = [evidence.values(plan.name, row.label, setting, metric.key) for row in plan.rows]
    by_sequence = []
    for sequence in sequences:
        here = [[value for key, value in row.items() if key[0] == sequence] for row in values]
        by_sequence.append(best_marked([mean_over_seeds(row) for row in here], metric.better))
    means = best_marked([mean_over_sequences(row, sequences) for row in values], metric.better)
    several = len(sequences) > 1
    ours = [*by_sequence, means] if several else by_sequence
    theirs = "Mean" if several or sequences[0] not in printed.columns else sequences[0]
    heading = theirs.replace("Mean", "mean")
    paper = [printed_cell(printed.find(row.method, metric.key), printed.columns.index(theirs)) for row in plan.rows]
    columns = [Column("Method", numeric=False), *(Column(name, metric.better) for name in sequences)]
    columns += [Column("Mean", metric.better)] if several else []
    columns += [Column(f"{PAPER}: {heading}", metric.better, apart=True)]
    extra = difference_columns(evidence, [means], [paper], [heading])
    columns += [column for column, _ in extra]
    rows = []
    if metric.key == "accuracy" and any(evidence.of(plan.name, row.label) for row in plan.rows):
        rows.append(_zero_shot_row(plan, evidence, setting, len(ours), len(columns)))
    for index, row in enumerate(plan.rows):
        cells = [column[index] for column in (*ours, paper, *(cells for _, cells in extra))]
        name = evidence.name_of(plan.name, row.label)
        rows.append(Row((Cell(name), *cells), label=name))
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. {metric.name}: {metric.meaning}. In percent."]
    notes += seed_notes(values) + _runner_up(plan, evidence, setting, metric, means)
    notes += paper_notes(evidence, printed) + missing_notes(plan, evidence)
    title = f"{SETTING_NAMES[setting]} {metric.name.lower()} on {where(evidence)}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def _zero_shot_row(plan: Plan, evidence: Evidence, setting: Setting, ours: int, width: int) -> Row:
    """Accuracy of the starting model; the order of the tasks does not change it, so it stands in all our columns."""
    runs = [run for row in plan.rows for run in evidence.of(plan.name, row.label).values()]
    mean = Cell(fmean(fmean(run.setting(setting).zero_shot) for run in runs))
    return Row((Cell(ZERO_SHOT), *[mean] * ours, *[Cell(None)] * (width - ours - 1)))


def _runner_up(plan: Plan, evidence: Evidence, setting: Setting, metric: Metric, means: Sequence[Cell]) -> list[str]:
    """The best mean against the second best, pair by pair."""
    sign = 1 if metric.better == "up" else -1
    numbers = {row.label: cell.value for row, cell in zip(plan.rows, means, strict=True)}
    known = {label: sign * value for label, value in numbers.items() if isinstance(value, int | float)}
    ranked = sorted(known, key=lambda label: -known[label])
    if len(ranked) < 2:
        return []
    first, second = (evidence.values(plan.name, label, setting, metric.key) for label in ranked[:2])
    paired = pair(first, second, metric.key)
    if paired is None or paired.p is None:
        return []
    pairs = count_of(len(paired.leads), paired.unit)
    gap = fixed(paired.mean, 2)
    words = f"level with {ranked[1]}" if float(gap) == 0 else f"better than {ranked[1]} by {gap}"
    return [
        f"Best mean against runner-up: {ranked[0]} is {words} on average and better in {paired.ahead} of {pairs} "
        f"(sign-flip test, two-sided: p = {fixed(paired.p, 3)})."
    ]
