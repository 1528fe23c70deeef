"""Tables of the ablations, the grid of distances and the seeds."""

from __future__ import annotations

from statistics import fmean, pstdev

from tasso.experiments.plans import Plan
from tasso.report.collect import SETTINGS, Setting
from tasso.report.paper.evidence import CORE, Evidence
from tasso.report.paper.printed import DISTANCES, printed_row, printed_table
from tasso.report.paper.published import Published
from tasso.report.paper.tables.cells import (
    METRICS,
    PAPER,
    Tables,
    best_marked,
    difference_columns,
    mean_over_seeds,
    missing_notes,
    paper_notes,
    printed_cell,
    printed_cells,
    seed_notes,
    slug,
    titled,
    where,
)
from tasso.report.tables import SETTING_NAMES, Cell, Column, Row, Table


def ablation_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """One table a setting."""
    return {f"{plan.name}-{setting}": _ablation_table(plan, evidence, published, setting) for setting in SETTINGS}


def _ablation_table(plan: Plan, evidence: Evidence, published: Published, setting: Setting) -> Table:
    """Three metrics of every row, and the same three as the paper prints them."""
    printed = [printed_row(published, plan, row, setting) for row in plan.rows]
    values = [[evidence.values(plan.name, row.label, setting, metric) for row in plan.rows] for metric in CORE]
    ours = [
        best_marked([mean_over_seeds(list(row.values())) for row in column], metric.better)
        for column, metric in zip(values, METRICS, strict=True)
    ]
    counts = [Cell(len(evidence.of(plan.name, row.label)), digits=0) for row in plan.rows]
    columns = [Column("Row", numeric=False), Column("Runs")]
    columns += [Column(metric.name, metric.better) for metric in METRICS]
    grid = [counts, *ours]
    shows_paper = sum(row is not None for row in printed) > 1
    if shows_paper:
        paper = [[printed_cell(row, index) for row in printed] for index in range(len(CORE))]
        names = [metric.name.lower() for metric in METRICS]
        columns += [
            Column(f"{PAPER}: {name}", metric.better, apart=True) for name, metric in zip(names, METRICS, strict=True)
        ]
        extra = difference_columns(evidence, ours, paper, names)
        columns += [column for column, _ in extra]
        grid += [*paper, *(cells for _, cells in extra)]
    rows = [
        Row((Cell(row.label_at(evidence.setup)), *(column[index] for column in grid)), label=row.label)
        for index, row in enumerate(plan.rows)
    ]
    notes = [f"{SETTING_NAMES[setting]}, {', '.join(plan.sequences_at(evidence.setup))}. In percent."]
    notes += seed_notes(values[0])
    source = printed_table(published, plan.name, setting)
    if shows_paper and source is not None:
        notes += paper_notes(evidence, source)
    title = titled(plan, f"{SETTING_NAMES[setting]} on {where(evidence)}")
    return Table(title, tuple(columns), tuple(rows), tuple(notes + missing_notes(plan, evidence)))


def _word(sign: str) -> str:
    return "none" if sign == "✗" else sign


def grid_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Distance outside (rows) by distance inside the subspace (columns), one table a metric and setting."""
    tables: Tables = {}
    for setting in SETTINGS:
        for metric in METRICS:
            values = [evidence.values(plan.name, row.label, setting, metric.key) for row in plan.rows]
            cells = best_marked([mean_over_seeds(list(row.values())) for row in values], metric.better)
            at = {(row.cells["f⊥"], row.cells["f∥"]): cell for row, cell in zip(plan.rows, cells, strict=True)}
            columns = [Column("Outside", numeric=False), *(Column(f"inside {_word(name)}") for name in DISTANCES)]
            printed = published.table(f"kd-grid-{metric.key}") if setting == "mtil" else None
            columns += [Column(f"{PAPER}: inside {_word(name)}", apart=True) for name in DISTANCES] if printed else []
            rows = []
            for outside, key in DISTANCES.items():
                line = [at[outside, inside] for inside in DISTANCES]
                if printed:
                    row = printed.find(key)
                    line += [printed_cell(row, printed.columns.index(inside)) for inside in DISTANCES.values()]
                rows.append(Row((Cell(f"outside {_word(outside)}"), *line)))
            arrow = "higher is better" if metric.better == "up" else "lower is better"
            notes = [
                f"{SETTING_NAMES[setting]} {metric.name.lower()} in percent, {arrow}; the best of the nine is marked."
            ]
            notes += seed_notes(values)
            notes += paper_notes(evidence, printed) if printed else []
            title = f"{plan.title}: {SETTING_NAMES[setting]} {metric.name.lower()} on {where(evidence)}"
            table = Table(title, tuple(columns), tuple(rows), tuple(notes + missing_notes(plan, evidence)))
            tables[f"distances-{setting}-{slug(metric.key)}"] = table
    return tables


def seed_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Seed by seed, then mean and standard deviation, for each row of the plan."""
    tables: Tables = {}
    for setting in SETTINGS:
        printed = published.table("seeds") if setting == "mtil" else None
        columns = [Column("Seed", numeric=False)]
        for row in plan.rows:
            columns += [Column(f"{row.label}: {metric.name.lower()}", metric.better) for metric in METRICS]
        if printed:
            columns += [Column(f"{PAPER}: TASSO {m.name.lower()}", m.better, apart=True) for m in METRICS]
        found = [
            {seed: value for (_, seed), value in evidence.values(plan.name, row.label, setting, metric).items()}
            for row in plan.rows
            for metric in CORE
        ]
        rows = []
        for seed in plan.seeds_at(evidence.setup):
            cells = [Cell(values.get(seed)) for values in found]
            rows.append(Row((Cell(str(seed)), *cells, *printed_cells(printed, str(seed)))))
        for name, key, sum_up in (("Mean", "mean", fmean), ("Std", "std", pstdev)):
            cells = [Cell(sum_up(values.values()) if len(values) > 1 else None) for values in found]
            line = (Cell(name), *cells, *printed_cells(printed, key))
            rows.append(Row(line, starts_block=key == "mean"))
        notes = [
            f"{SETTING_NAMES[setting]}, {', '.join(plan.sequences_at(evidence.setup))}. In percent. "
            "The standard deviation is the paper's, with n in the denominator; other tables have n - 1."
        ]
        notes += paper_notes(evidence, printed) if printed else []
        title = titled(plan, f"{SETTING_NAMES[setting]} on {where(evidence)}")
        table = Table(title, tuple(columns), tuple(rows), tuple(notes + missing_notes(plan, evidence)))
        tables[f"seeds-{setting}"] = table
    return tables
