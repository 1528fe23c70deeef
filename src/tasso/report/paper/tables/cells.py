"""Cells, columns and notes that the tables of all plans share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from tasso.experiments.plans import Plan
from tasso.report.groups import average
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.published import PublishedRow, PublishedTable
from tasso.report.tables import CORE_METRICS, Cell, Column, Direction, Row, Table, count_of

PAPER = "paper, its own data"
# In the paper's words, since its columns stand beside ours.
METRICS = (*CORE_METRICS[:2], replace(CORE_METRICS[2], name="Zero-shot degradation"))
PAPER_BENCHMARK, PAPER_MODEL = "mtil", "ViT-B-16-quickgelu (openai)"
Tables = dict[str, Table]  # by a name that a file can have


def comparable(evidence: Evidence) -> bool:
    """Are these runs of the paper's whole benchmark with the paper's model? Only then is a difference from it shown."""
    common = evidence.setup.common
    whole = not any(common.get(key) for key in ("limit_tasks", "test_per_class")) and common.get("check_counts", True)
    models = {run.model for run in evidence.every_run()}
    return bool(whole) and evidence.setup.benchmark == PAPER_BENCHMARK and models == {PAPER_MODEL}


def as_printed(table: PublishedTable) -> Table:
    """A table of the paper by itself, with the paper's own marks."""
    names = {metric.key: metric.name for metric in METRICS}
    several = any(row.metric for row in table.rows)
    columns = [Column("Metric", numeric=False)] if several else []
    columns.append(Column("Row", numeric=False))
    for index, name in enumerate(table.columns):
        numeric = all(row.values[index][:1].isdigit() for row in table.rows)
        columns.append(Column(names.get(name, name), numeric=numeric, apart=True))
    rows: list[Row] = []
    for row in table.rows:
        first = (Cell(names[row.metric]),) if row.metric else ()
        cells = (printed_cell(row, index) for index in range(len(table.columns)))
        previous = table.rows[len(rows) - 1] if rows else row
        name = 'TASSO (printed as "Ours")' if row.name == "Ours" else row.name
        rows.append(Row((*first, Cell(name), *cells), starts_block=row.metric != previous.metric))
    title = f"Paper, its own data: {table.reference}"
    return Table(title, tuple(columns), tuple(rows), (table.caption,))


def titled(plan: Plan, rest: str) -> str:
    """The plan's title with what is special to one of its tables."""
    return f"{plan.title} {rest}" if plan.title.endswith("?") else f"{plan.title}: {rest}"


def slug(text: str) -> str:
    return text.replace("_", "-").replace(" ", "-")


def where(evidence: Evidence) -> str:
    """Benchmark and model; the model is known once a run is there."""
    model = next((run.model for run in evidence.every_run()), None)
    return f"{evidence.setup.benchmark}, {model}" if model else evidence.setup.benchmark


def mean_over_seeds(values: Sequence[float]) -> Cell:
    """Mean ± sample standard deviation over seeds, or a dash."""
    if not values:
        return Cell(None)
    result = average(values)
    return Cell(result.mean, result.spread)


def mean_over_sequences(values: Mapping[tuple[str, int], float], sequences: Sequence[str]) -> Cell:
    """Mean over the sequences, if all are there; ± over the seeds that have all of them."""
    if {sequence for sequence, _ in values} != set(sequences):
        return Cell(None)
    means = [fmean(value for key, value in values.items() if key[0] == sequence) for sequence in sequences]
    seeds = dict.fromkeys(seed for _, seed in values)
    whole = [seed for seed in seeds if all((sequence, seed) in values for sequence in sequences)]
    by_seed = [fmean(values[sequence, seed] for sequence in sequences) for seed in whole]
    spread = average(by_seed).spread if len(whole) == len(seeds) else None
    return Cell(fmean(means), spread)


def best_marked(cells: Sequence[Cell], better: Direction) -> list[Cell]:
    """Mark the best of ours, compared as shown, where there are at least two."""
    numbers = [float(cell.main) for cell in cells if cell.value is not None]
    if len(numbers) < 2:
        return list(cells)
    best = max(numbers) if better == "up" else min(numbers)
    return [replace(cell, best=cell.value is not None and float(cell.main) == best) for cell in cells]


def printed_cell(row: PublishedRow | None, index: int) -> Cell:
    """A value of the paper, with its digits and its mark; a dash where it has none."""
    if row is None:
        return Cell(None)
    text, bold = row.values[index], index in row.bold
    digits = len(text.partition(".")[2])
    try:
        number = float(text)
    except ValueError:
        return Cell(text, best=bold)
    cell = Cell(number, digits=digits, best=bold)
    return cell if cell.main == text else Cell(text, best=bold)


def printed_cells(table: PublishedTable | None, key: str) -> list[Cell]:
    return [] if table is None else [printed_cell(table.find(key), index) for index in range(len(table.columns))]


def difference_columns(
    evidence: Evidence, ours: Sequence[Sequence[Cell]], paper: Sequence[Sequence[Cell]], names: Sequence[str]
) -> list[tuple[Column, list[Cell]]]:
    """Ours less the paper's, where that means something."""
    if not comparable(evidence):
        return []
    found = []
    for name, mine, theirs in zip(names, ours, paper, strict=True):
        cells = []
        for one, other in zip(mine, theirs, strict=True):
            both = isinstance(one.value, int | float) and isinstance(other.value, int | float)
            cells.append(Cell(float(one.value) - float(other.value)) if both else Cell(None))  # type: ignore[arg-type]
        found.append((Column(f"ours less paper: {name}"), cells))
    return found


def seed_notes(values: Sequence[Mapping[tuple[str, int], float]]) -> list[str]:
    counts = sorted({len({seed for _, seed in row}) for row in values if row})
    if not counts:
        return []
    if counts[-1] == 1:
        return ["One seed: differences smaller than the spread over seeds mean nothing."]
    return [f"Mean ± sample standard deviation (n - 1) over {' or '.join(map(str, counts))} seeds."]


def paper_notes(evidence: Evidence, *tables: PublishedTable) -> list[str]:
    where = ", ".join(dict.fromkeys(table.reference for table in tables))
    same = "the same benchmark and model as ours" if comparable(evidence) else "another model and other data than ours"
    return [f'Columns headed "{PAPER}" are printed in {where}: {same}. Marks are set in ours and in theirs apart.']


def missing_notes(plan: Plan, evidence: Evidence) -> list[str]:
    missing, wanted = evidence.missing(plan)
    if not missing:
        return []
    return [f"{missing} of {count_of(wanted, 'run')} missing; a dash stands for what is not there yet."]
