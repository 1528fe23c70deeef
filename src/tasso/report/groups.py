"""Which runs may be compared, and which are repeats of each other with another seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tasso.report.collect import RunResult, Setting


@dataclass(frozen=True)
class Average:
    """A mean over `count` runs; `spread` is the sample standard deviation (n - 1), None for a single run."""

    mean: float
    spread: float | None
    count: int


def average(values: Sequence[float]) -> Average:
    return Average(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Group:
    """The runs of one method within a comparison: they differ only in their seed."""

    label: str
    runs: tuple[RunResult, ...]

    @property
    def finished(self) -> tuple[RunResult, ...]:
        return tuple(run for run in self.runs if run.finished)

    def metric(self, setting: Setting, name: str) -> Average | None:
        """The metric over the finished runs; None where there is none or one of them lacks the metric."""
        values = [run.setting(setting).metrics[name] for run in self.finished]
        numbers = [value for value in values if value is not None]
        return average(numbers) if numbers and len(numbers) == len(values) else None


@dataclass(frozen=True)
class Comparison:
    """Runs on the same tasks in the same order with the same model: only these are set side by side.

    The order is part of it because transfer, average and forgetting all depend on it.
    """

    benchmark: str
    model: str
    sequence: str
    tasks: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def name(self) -> str:
        parts = [self.benchmark, self.model]
        return ", ".join(parts + ([f"order {self.sequence}"] if self.sequence else []))

    @property
    def order(self) -> str:
        """The name of the order of the tasks, or the tasks themselves."""
        return self.sequence or ", ".join(self.tasks)

    @property
    def runs(self) -> tuple[RunResult, ...]:
        return tuple(run for group in self.groups for run in group.runs)

    def zero_shot(self, setting: Setting) -> tuple[float, ...]:
        """The starting model's accuracy per task, averaged over the runs (which nearly always agree)."""
        rows = [run.setting(setting).zero_shot for run in self.runs]
        return tuple(fmean(column) for column in zip(*rows, strict=True))


def compare(runs: Sequence[RunResult]) -> list[Comparison]:
    """Sort runs into comparisons and groups, each in the order in which it first appears."""
    found: dict[tuple[str, str, str, tuple[str, ...]], dict[str, list[RunResult]]] = {}
    for run in runs:
        key = (run.benchmark, run.model, run.sequence, run.tasks)
        found.setdefault(key, {}).setdefault(run.label, []).append(run)
    return [
        Comparison(*key, groups=tuple(Group(label, tuple(members)) for label, members in by_label.items()))
        for key, by_label in found.items()
    ]


@dataclass(frozen=True)
class Orders:
    """Comparisons that have all but the order of the tasks in common."""

    benchmark: str
    model: str
    comparisons: tuple[Comparison, ...]

    @property
    def name(self) -> str:
        return f"{self.benchmark}, {self.model}"

    @property
    def runs(self) -> tuple[RunResult, ...]:
        return tuple(run for comparison in self.comparisons for run in comparison.runs)


def several_orders(comparisons: Sequence[Comparison]) -> list[Orders]:
    """Where the same tasks were learned in at least two orders, these together, sorted by their names."""
    found: dict[tuple[str, str, frozenset[str]], list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault((comparison.benchmark, comparison.model, frozenset(comparison.tasks)), []).append(comparison)
    return [
        Orders(benchmark, model, tuple(sorted(members, key=lambda comparison: comparison.order)))
        for (benchmark, model, _), members in found.items()
        if len({comparison.order for comparison in members}) > 1
    ]
