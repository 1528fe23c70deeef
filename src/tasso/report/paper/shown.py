"""Which runs are drawn: those of the main tables, named as there. All others are rows of tables."""

from __future__ import annotations

from dataclasses import replace

from tasso.experiments.plans import MAIN, PLANS, SND, TASSO
from tasso.report.collect import RunResult
from tasso.report.paper.evidence import Evidence

# The first two colours are for those that the paper's figures set against each other.
ORDER = (TASSO, SND, *(row for row in MAIN if row not in (TASSO, SND)))


def shown_runs(evidence: Evidence) -> list[RunResult]:
    """Runs of the main tables, sequence by sequence; while there are none, all that are not there for their time."""
    found = [
        (sequence, seed, place, replace(run, label=evidence.name_of("main", row.label)))
        for place, row in enumerate(ORDER)
        for (sequence, seed), run in evidence.of("main", row.label).items()
    ]
    if found:
        sequences = PLANS["main"].sequences_at(evidence.setup)
        rank = {sequence: number for number, sequence in enumerate(sequences)}
        return [run for *_, run in sorted(found, key=lambda one: (rank.get(one[0], len(rank)), one[2], one[1]))]
    # A timed run is the same once more, with the machine to itself: it would count one seed twice.
    return evidence.every_run([plan for plan in PLANS.values() if not plan.tag])


def closely(runs: list[RunResult]) -> list[RunResult]:
    """Those that are drawn one by one: of the first sequence, S1 as in the paper."""
    return [run for run in runs if run.order == runs[0].order and run.tasks == runs[0].tasks]
