"""What has been measured, by plan and row: the finished runs behind every row of every table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from tasso.experiments.plans import TASSO, Plan, PlanRow, Setup
from tasso.report.collect import RESULTS_NAME, ReportError, RunResult, Setting, read_run
from tasso.report.paper.arithmetic import Arithmetic, read_arithmetic
from tasso.report.paper.paired import Paired
from tasso.report.paper.record import Names, names_of

Runs = Mapping[tuple[str, int], RunResult]  # by sequence and seed
Values = Mapping[tuple[str, int], float]

CORE = ("accuracy", "forgetting", "zero_shot_degradation")


def direction(metric: str) -> int:
    """1 where more is better, -1 where less is."""
    return -1 if metric in ("forgetting", "zero_shot_degradation") else 1


@dataclass(frozen=True)
class Evidence:
    """Finished runs by (plan's name, row's label), and how many runs each of these rows wants."""

    setup: Setup
    runs: Mapping[tuple[str, str], Runs]
    wanted: Mapping[tuple[str, str], int]
    # Of a training step, by row of the plan `compute`.
    arithmetic: Mapping[str, Arithmetic] = field(default_factory=dict)

    def of(self, plan: str, row: str) -> Runs:
        """The finished runs of a row; none if its plan was not asked for."""
        return self.runs.get((plan, row), {})

    def name_of(self, plan: str, row: str) -> str:
        """A row's label, with what stands in for a part of its method: `GIFT, retrieved images`."""
        parts = dict.fromkeys(part for run in self.of(plan, row).values() if (part := stand_in(run)))
        return ", ".join([row, *parts])

    def stand_ins(self) -> list[str]:
        """All of them, method by method."""
        names = [self.name_of(plan, row) for plan, row in self.runs]
        return list(dict.fromkeys(name for name, (_, row) in zip(names, self.runs, strict=True) if name != row))

    def shows_replay(self, row: str) -> bool:
        """Is a row not what its method would do? On atlas, GIFT's images come from the code that draws the tasks."""
        drawn = self.setup.by_method.get("gift", {}).get("method.generator") == "atlas"
        return row == "GIFT" and drawn and self.setup.benchmark == "atlas"

    def values(self, plan: str, row: str, setting: Setting, metric: str) -> dict[tuple[str, int], float]:
        """A metric of these runs, where they have it."""
        found = {pair: run.setting(setting).metrics[metric] for pair, run in self.of(plan, row).items()}
        return {pair: value for pair, value in found.items() if value is not None}

    def missing(self, plan: Plan) -> tuple[int, int]:
        """How many runs of a plan's rows are not there yet, and how many there should be."""
        keys = [(plan.name, row.label) for row in plan.rows]
        wanted = sum(self.wanted.get(key, 0) for key in keys)
        return wanted - sum(len(self.runs.get(key, {})) for key in keys), wanted

    def every_run(self, plans: Sequence[Plan] | None = None) -> list[RunResult]:
        """Each run of these plans, or of all, once, in the order of plans and rows."""
        names = None if plans is None else {plan.name for plan in plans}
        kept = [runs for (plan, _), runs in self.runs.items() if names is None or plan in names]
        return list({run.path: run for runs in kept for run in runs.values()}.values())

    def spread(self, setting: Setting, metric: str) -> float | None:
        """Sample standard deviation over seeds of TASSO on one sequence, from the row that has most seeds.

        None with fewer than three: two seeds say next to nothing about a spread.
        """
        found: list[float] = []
        for plan, row in self.runs:
            # All plans call TASSO as the paper has it by this name, or show it as one value of an option.
            values = self.values(plan, row, setting, metric) if row == TASSO.label else {}
            for sequence in dict.fromkeys(sequence for sequence, _ in values):
                numbers = [value for key, value in values.items() if key[0] == sequence]
                found = numbers if len(numbers) > max(2, len(found)) else found
        return stdev(found) if found else None


def pair(first: Values, second: Values, metric: str) -> Paired | None:
    """Leads of the first over the second on the sequences and with the seeds that both have; None if there are none.

    With several sequences a pair is a sequence, with the mean over its seeds; else a pair is a seed.
    """
    shared = [key for key in first if key in second]
    if not shared:
        return None
    leads = {key: direction(metric) * (first[key] - second[key]) for key in shared}
    seeds = len({seed for _, seed in shared})
    sequences = dict.fromkeys(sequence for sequence, _ in shared)
    if len(sequences) == 1:
        return Paired(tuple(leads.values()), "seed", seeds)
    means = (fmean(lead for key, lead in leads.items() if key[0] == sequence) for sequence in sequences)
    return Paired(tuple(means), "sequence", seeds)


def gather(plans: Sequence[Plan], setup: Setup, folder: Path, names: Names | None = None) -> Evidence:
    """Read the runs of these plans: each lies in `folder` under its job's name. Unfinished ones are left out.

    Args:
        names: what the runs are called, if it is written down; otherwise it follows from the set-up.
    """
    names = names_of(plans, setup) if names is None else names
    read: dict[str, RunResult | None] = {}
    runs: dict[tuple[str, str], Runs] = {}
    wanted: dict[tuple[str, str], int] = {}
    for plan in plans:
        for row in plan.rows:
            here = names.get((plan.name, row.label), {})
            found = {}
            for key, name in here.items():
                if name not in read:
                    read[name] = _finished(folder / name)
                if (run := read[name]) is not None:
                    _check(run, setup, row, *key)
                    found[key] = run
            runs[plan.name, row.label] = found
            wanted[plan.name, row.label] = len(here)
    models = {run.model for row_runs in runs.values() for run in row_runs.values()}
    if len(models) > 1:
        raise ReportError(f"{folder}: runs of different models ({', '.join(sorted(models))}) cannot be compared")
    counted = read_arithmetic(folder)
    timed = {row: one for (plan, row), here in names.items() if plan == "compute" for one in here.values()}
    return Evidence(setup, runs, wanted, {row: counted[name] for row, name in timed.items() if name in counted})


def stand_in(run: RunResult) -> str:
    """What a run's label says after the method and its options: `GIFT (images 8), retrieved images`."""
    found = re.fullmatch(r"[^,(]*(?:\(.*\))?(?:, (.*))?", run.label)
    return (found[1] or "") if found else ""


def _finished(folder: Path) -> RunResult | None:
    if not (folder / RESULTS_NAME).is_file():
        return None
    run = read_run(folder)
    return run if run.finished else None


def _check(run: RunResult, setup: Setup, row: PlanRow, sequence: str, seed: int) -> None:
    """The folder's name says what a run is; its results must say the same."""
    expected = {"benchmark": setup.benchmark, "method": row.method, "sequence": sequence, "seed": seed}
    for key, value in expected.items():
        if getattr(run, key) != value:
            raise ReportError(
                f"{run.path / RESULTS_NAME}: {key} is {getattr(run, key)!r}, but its folder is that of a run "
                f"with {value!r}"
            )
