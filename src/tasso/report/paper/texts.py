"""Distances between class texts and images after the last task: what the runs of TASSO and SnD have kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from tasso.experiments.plans import SND, TASSO, PlanRow
from tasso.report.alignment import Distances
from tasso.report.collect import RunResult
from tasso.report.paper.evidence import Evidence

Level = Literal["classes", "images"]
LEVELS: tuple[Level, ...] = ("classes", "images")
SEQUENCE = "S1"


def middle(distances: Distances, level: Level) -> float | None:
    """The median distance: over the classes, text against mean image, as the paper draws it; or over images."""
    if level == "images":
        return distances.quantiles[2]
    return median(distances.prototypes) if distances.prototypes else None


@dataclass(frozen=True)
class Texts:
    """Runs on S1 that have kept their distances, by seed."""

    ours: Mapping[int, RunResult]
    theirs: Mapping[int, RunResult]

    @property
    def tasks(self) -> Sequence[str]:
        return next((run.tasks for run in (*self.ours.values(), *self.theirs.values())), ())

    @property
    def seeds(self) -> list[int]:
        """Seeds that both have."""
        return [seed for seed in self.ours if seed in self.theirs]

    def leads(self, level: Level) -> dict[str, list[float]]:
        """By data set: how much closer TASSO is than SnD, seed by seed."""
        found: dict[str, list[float]] = {}
        for number, task in enumerate(self.tasks):
            for seed in self.seeds:
                ours, theirs = (_last(runs[seed], number, level) for runs in (self.ours, self.theirs))
                if ours is not None and theirs is not None:
                    found.setdefault(task, []).append(theirs - ours)
        return found


def gathered(evidence: Evidence) -> Texts:
    """From the plan `alignment` and, for more seeds, from the plan `seeds`."""
    return Texts(_runs(evidence, TASSO), _runs(evidence, SND))


def _runs(evidence: Evidence, row: PlanRow) -> dict[int, RunResult]:
    found = {**evidence.of("seeds", row.label), **evidence.of("alignment", row.label)}
    return {
        seed: run
        for (sequence, seed), run in sorted(found.items())
        if sequence == SEQUENCE and run.alignment is not None and run.alignment.last
    }


def _last(run: RunResult, task: int, level: Level) -> float | None:
    kept = run.alignment
    return None if kept is None or kept.last is None else middle(kept.last[task], level)


def medians(runs: Mapping[int, RunResult], task: int, level: Level) -> list[float]:
    """After the last task, seed by seed."""
    return [value for run in runs.values() if (value := _last(run, task, level)) is not None]


def start(texts: Texts, task: int, level: Level) -> float | None:
    """Of the model that all runs begin with."""
    for run in (*texts.ours.values(), *texts.theirs.values()):
        if run.alignment is not None and run.alignment.zero_shot:
            return middle(run.alignment.zero_shot[task], level)
    return None


def mean_leads(leads: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {task: fmean(values) for task, values in leads.items()}
