"""One plain sentence that says what the runs show: facts only, in the words of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from tasso.report.collect import RunResult, Setting
from tasso.report.groups import Average, Comparison, compare
from tasso.report.tables import SETTING_NAMES, count_of, fixed


def conclude(runs: Sequence[RunResult], setting: Setting = "mtil") -> str:
    """Who has the highest final accuracy, by how much, and against which zero-shot accuracy."""
    ranked = [(comparison, _ranking(comparison, setting)) for comparison in compare(runs)]
    ranked = [(comparison, ranking) for comparison, ranking in ranked if ranking]
    if not ranked:
        return "No run has finished yet."
    if len(ranked) == 1:
        return _one(*ranked[0], setting)
    contested = [(comparison, ranking) for comparison, ranking in ranked if len(ranking) > 1]
    if not contested:
        return "No two methods were run on the same tasks in the same order, so there is nothing to compare yet."
    if len(contested) == 1:
        return f"On {contested[0][0].name}: {_one(*contested[0], setting)}"
    wins = Counter(ranking[0][0] for _, ranking in contested).most_common()
    counts = ", ".join(f"{label} in {count}" for label, count in wins)
    return f"Highest final {SETTING_NAMES[setting]} accuracy in {len(contested)} comparisons: {counts}."


def _ranking(comparison: Comparison, setting: Setting) -> list[tuple[str, Average]]:
    found = [(group.label, group.metric(setting, "accuracy")) for group in comparison.groups]
    kept = [(label, result) for label, result in found if result is not None]
    return sorted(kept, key=lambda item: -item[1].mean)


def _one(comparison: Comparison, ranking: list[tuple[str, Average]], setting: Setting) -> str:
    label, first = ranking[0]
    zero_shot = fixed(fmean(comparison.zero_shot(setting)), 1)
    tasks = count_of(len(comparison.tasks), "task")
    name, value = SETTING_NAMES[setting], f"{fixed(first.mean, 1)}%"
    if len(ranking) == 1:
        start = f"the starting model has {zero_shot}% zero-shot"
        return f"After {tasks}, {label} reaches {value} {name} accuracy; {start}."
    second, next_best = ranking[1]
    gap = fixed(first.mean - next_best.mean, 1)
    ahead = f"level with {second}" if float(gap) == 0 else f"{gap} points above {second}, the next best"
    return f"After {tasks}, {label} has the highest {name} accuracy, {value}: {ahead} (zero-shot: {zero_shot}%)."
