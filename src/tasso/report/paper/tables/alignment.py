"""How far class texts and images lie apart after the last task."""

from __future__ import annotations

from dataclasses import replace

from tasso.data.catalogue import BENCHMARKS
from tasso.experiments.plans import SND, TASSO, Plan
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.published import Published
from tasso.report.paper.tables.cells import Tables, best_marked, mean_over_seeds, missing_notes, where
from tasso.report.paper.texts import LEVELS, SEQUENCE, gathered, mean_leads, medians, start
from tasso.report.tables import ZERO_SHOT, Cell, Column, Row, Table, count_of

DIGITS = 4
_WORDS = {"classes": "class means", "images": "images"}


def alignment_tables(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """Median distance of each data set, TASSO beside SnD; the paper prints no such numbers, it draws them."""
    texts = gathered(evidence)
    tasks = texts.tasks or BENCHMARKS[evidence.setup.benchmark].tasks
    columns = [Column("Data set", numeric=False)]
    grid: list[list[Cell]] = []
    for level in LEVELS:
        columns += [Column(f"{_WORDS[level]}: {name}", "down") for name in (ZERO_SHOT, TASSO.label, SND.label)]
        beginning, ours, theirs = [], [], []
        for number in range(len(tasks)):
            value = start(texts, number, level)
            beginning.append(Cell(value, digits=DIGITS))
            pair = [mean_over_seeds(medians(runs, number, level)) for runs in (texts.ours, texts.theirs)]
            first, second = best_marked([replace(cell, digits=DIGITS) for cell in pair], "down")
            ours.append(first)
            theirs.append(second)
        grid += [beginning, ours, theirs]
    rows = [Row((Cell(task), *(column[number] for column in grid))) for number, task in enumerate(tasks)]
    notes = [
        f"Medians of 1 − cosine after the last task of {SEQUENCE}; lower is closer. Class means: the text of a class "
        "against the mean of its test images, as the paper draws it. Images: each test image against the text of "
        "its class.",
    ]
    counts = sorted({len(texts.ours), len(texts.theirs)})
    if counts[-1] > 1:
        notes.append(f"Mean ± sample standard deviation (n - 1) over {' or '.join(map(str, counts))} seeds.")
    for level in LEVELS:
        if leads := mean_leads(texts.leads(level)):
            won = sum(lead > 0 for lead in leads.values())
            notes.append(f"By {_WORDS[level]}, TASSO is closer on {won} of {count_of(len(leads), 'data set')}.")
    title = f"{plan.title} on {where(evidence)}"
    return {"alignment": Table(title, tuple(columns), tuple(rows), tuple(notes + missing_notes(plan, evidence)))}
