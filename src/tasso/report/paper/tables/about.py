"""Tables of what runs cost, of single domains, of data sets and of sequences."""

from __future__ import annotations

from dataclasses import replace

from tasso.data.catalogue import BENCHMARKS
from tasso.data.sequences import rotation
from tasso.experiments.plans import Plan
from tasso.report.collect import SETTINGS, RunResult
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.published import Published
from tasso.report.paper.tables.cells import PAPER, Tables, as_printed, missing_notes, paper_notes, slug, where
from tasso.report.tables import SETTING_NAMES, Cell, Column, Row, Table, matrix_table


def compute_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Training time, speed and memory of the timed runs, and the arithmetic of a step."""
    printed = published.table("compute")
    keys = {row.name: row.key for row in printed.rows}
    columns = [Column("Row", numeric=False), Column("Training (s)", "down"), Column("Images per second", "up")]
    columns += [Column("Peak memory (GiB)", "down"), Column("TFLOP a step", "down")]
    columns += [Column(f"{PAPER}: {name}", numeric=False, apart=True) for name in printed.columns]
    rows = []
    for row in plan.rows:
        run = next(iter(evidence.of(plan.name, row.label).values()), None)
        paper = printed.find(keys.get(row.label, ""))
        texts = [None] * len(printed.columns) if paper is None else paper.values
        counted = evidence.arithmetic.get(row.label)
        tflop = Cell(None if counted is None else counted.tflop, digits=4)
        rows.append(Row((Cell(row.label), *_costs(run), tflop, *(Cell(text) for text in texts)), label=row.label))
    notes = [
        "One run each that had the machine to itself: all tasks of "
        f"{', '.join(plan.sequences_at(evidence.setup))}, training only.",
        *_counting_notes(evidence),
        *paper_notes(evidence, printed),
        *missing_notes(plan, evidence),
    ]
    title = f"Time and memory on {where(evidence)}"
    return {"compute": Table(title, tuple(columns), tuple(rows), tuple(notes))}


def _counting_notes(evidence: Evidence) -> list[str]:
    classes = sorted({counted.classes for counted in evidence.arithmetic.values()})
    if not classes:
        return []
    return [
        f"TFLOP a step: 10¹² multiplications and additions, counted in one step of the second of two tasks with "
        f"{' or '.join(map(str, classes))} classes, teachers included. The paper does not say what its TFLOPs are of."
    ]


def _costs(run: RunResult | None) -> tuple[Cell, Cell, Cell]:
    costs = () if run is None else run.costs
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]
    images = [
        cost.seconds * cost.images_per_second
        for cost in costs
        if cost.seconds is not None and cost.images_per_second is not None
    ]
    memory = [cost.peak_memory_bytes for cost in costs if cost.peak_memory_bytes is not None]
    complete = bool(costs) and len(seconds) == len(costs)
    return (
        Cell(sum(seconds) if complete else None, digits=1),
        Cell(sum(images) / sum(seconds) if complete and len(images) == len(costs) else None, digits=0),
        Cell(max(memory) / 2**30 if memory else None),
    )


def matrix_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Our matrix of each row in each setting, and the paper's: the domains differ, so they are tables of their own."""
    tables: Tables = {}
    for setting in SETTINGS:
        for row in plan.rows:
            for (sequence, seed), run in evidence.of(plan.name, row.label).items():
                table = matrix_table(run, setting)
                title = f"{row.label}, {sequence}, seed {seed}: {SETTING_NAMES[setting]} accuracy on {where(evidence)}"
                tables[f"matrix-{setting}-{slug(row.label.lower())}-{sequence}-{seed}"] = replace(table, title=title)
        tables[f"paper-matrix-{setting}"] = as_printed(published.table(f"matrix-{setting}"))
    return tables


def data_set_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Classes and images of the benchmark at hand, and of the paper's."""
    benchmark = BENCHMARKS[evidence.setup.benchmark]
    printed = published.table("datasets")
    columns = [Column("Data set", numeric=False), Column("Classes"), Column("Training"), Column("Test")]
    rows = []
    for data_set in (*benchmark.data_sets, benchmark.reference):
        is_reference = data_set is benchmark.reference
        # A benchmark's whole reference list may be longer than what is used of it, and 0 classes means none are known.
        sizes = [data_set.classes or None, data_set.train, data_set.test or None]
        name = f"{data_set.name} (reference images)" if is_reference else data_set.name
        rows.append(Row((Cell(name), *(Cell(size, digits=0) for size in sizes)), starts_block=is_reference))
    ours = Table(
        f"Data sets of {benchmark.name}",
        tuple(columns),
        tuple(rows),
        (f"{benchmark.summary[0].upper()}{benchmark.summary[1:]}.",),
    )
    return {"datasets": ours, "paper-datasets": as_printed(printed)}


def sequence_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """The rotations of the benchmark at hand, and those of the paper."""
    tasks = BENCHMARKS[evidence.setup.benchmark].tasks
    columns = [Column("Sequence", numeric=False)]
    columns += [Column(f"Task {number}", numeric=False) for number in range(1, len(tasks) + 1)]
    rows = [
        Row((Cell(f"S{number}"), *(Cell(name) for name in rotation(tasks, number))))
        for number in range(1, len(tasks) + 1)
    ]
    ours = Table(f"Sequences of {evidence.setup.benchmark}", tuple(columns), tuple(rows))
    return {"sequences": ours, "paper-sequences": as_printed(published.table("sequences"))}
