"""One plain sentence that says what the runs show: facts only, in the words of the tables."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pandas as pd

from tasso.report.frame import Comparison, Setting, compare, finished_metrics, zero_shot
from tasso.report.tables import SETTING_NAMES, count_of, fixed

Ranking = list[tuple[str, float]]  # label, mean accuracy


def conclude(frame: pd.DataFrame, setting: Setting = "mtil") -> str:
    """Which method has the highest final accuracy, by how much, and against which zero-shot accuracy."""
    ranked = [(comparison, _ranking(comparison, setting)) for comparison in compare(frame)]
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


def _ranking(comparison: Comparison, setting: Setting) -> Ranking:
    found = finished_metrics(comparison.frame, setting)
    means = found.groupby("label", sort=False)["accuracy"].agg(fmean).dropna()
    return sorted(means.items(), key=lambda item: -item[1])


def _one(comparison: Comparison, ranking: Ranking, setting: Setting) -> str:
    label, first = ranking[0]
    start = fixed(fmean(zero_shot(comparison.frame, setting)), 1)
    tasks = count_of(len(comparison.tasks), "task")
    name, value = SETTING_NAMES[setting], f"{fixed(first, 1)}%"
    if len(ranking) == 1:
        return f"After {tasks}, {label} reaches {value} {name} accuracy; the pretrained model has {start}% zero-shot."
    second, next_best = ranking[1]
    gap = fixed(first - next_best, 1)
    ahead = f"level with {second}" if float(gap) == 0 else f"{gap} points above {second}, the next best"
    return f"After {tasks}, {label} has the highest {name} accuracy, {value}: {ahead} (zero-shot: {start}%)."
