"""One plain sentence: what was compared, on what, and what came out. Facts only, in the words of the tables."""

from __future__ import annotations

import re
from collections import Counter

import pandas as pd

from tasso.config import OWN
from tasso.report.frame import SEEN, Orders, Setting, accuracies, by_tasks, compare, settings_of, zero_shot_accuracy
from tasso.report.looks import looks
from tasso.report.tables import CORE_METRICS, SETTING_NAMES, count_of, fixed, order_means

SENTENCES = 3  # where no two methods can be compared
PER_TASK = 8  # tasks whose accuracies are listed

Ranking = list[tuple[str, float]]  # short name and mean, the best first


def conclude(frame: pd.DataFrame) -> str:
    """How many methods learned which tasks, which is the most accurate and which forgets least: among the classes
    learned so far where these were scored, else in MTIL."""
    setting: Setting = SEEN if SEEN in settings_of(frame) else "mtil"
    names = {label: _quoted(look.name) for label, look in looks(frame).items()}
    found = [(orders, _rankings(orders, setting, names)) for orders in by_tasks(compare(frame))]
    found = [(orders, rankings) for orders, rankings in found if rankings[0]]
    if not found:
        if not frame["finished"].any():
            return "No run has finished yet."
        return "No method has finished every order of the tasks yet; the tables have what there is."
    contested = [(orders, rankings) for orders, rankings in found if len(rankings[0]) > 1]
    if len(found) == 1 or len(contested) == 1:
        orders, rankings = (contested or found)[0]
        return _one(orders, rankings, setting) + ("" if contested else _per_task(orders, setting))
    if not contested:  # each stands for itself, such as a run and its extension
        more = f" {len(found) - SENTENCES} more are in the tables." if len(found) > SENTENCES else ""
        return " ".join(_one(orders, rankings, setting) for orders, rankings in found[:SENTENCES]) + more
    wins = Counter(rankings[0][0][0] for _, rankings in contested).most_common()
    counts = ", ".join(f"{name} in {count}" for name, count in wins)
    return f"Highest final {SETTING_NAMES[setting]} accuracy in {len(contested)} comparisons: {counts}."


def _quoted(name: str) -> str:
    """A name in which a sentence might seem to end, such as that of a plan's row, in quotation marks."""
    return f'"{name}"' if re.search("[,:]", name) else name


def _rankings(orders: Orders, setting: Setting, names: dict[str, str]) -> list[Ranking]:
    """Of accuracy and forgetting."""
    found = []
    for metric in CORE_METRICS[:2]:
        cells, _ = order_means(orders, setting, metric)
        values = [
            (names[label], float(cell.value))
            for label, cell in zip(orders.labels, cells, strict=True)
            if cell.value is not None
        ]
        found.append(sorted(values, key=lambda item: -item[1] if metric.better == "up" else item[1]))
    return found


def _one(orders: Orders, rankings: list[Ranking], setting: Setting) -> str:
    ranking, forgetting = rankings
    zero_shot = zero_shot_accuracy(orders.frame, setting)
    start = fixed(zero_shot, 1)
    who = ranking[0][0]
    if len(orders.labels) > 1:
        methods = orders.frame["method"].nunique()
        who = "one method" if methods == 1 else f"{methods} methods"
        who = who if methods == len(orders.labels) else f"{len(orders.labels)} variants of {who}"
    count, benchmark = len(orders.comparisons[0].tasks), orders.benchmark
    own = benchmark.split()[0] == OWN  # conditions may follow
    tasks = count_of(count, "own task") + benchmark[len(OWN) :] if own else f"{count_of(count, 'task')} of {benchmark}"
    several = f" in {len(orders.comparisons)} orders" if len(orders.comparisons) > 1 else ""
    what = f"{who} learned {tasks} one after the other{several}, starting from {orders.model}"
    (first, best), name = ranking[0], SETTING_NAMES[setting]
    value = f"{fixed(best, 1)} % {name} accuracy"
    if len(ranking) == 1:
        gain = fixed(abs(best - zero_shot), 1)
        lost = f", and {_forgets(forgetting[0][1])}" if forgetting else ""
        than = f"{gain} points {'above' if best > zero_shot else 'below'}" if float(gain) else "level with"
        return f"{what}: it ends at {value}, {than} zero-shot ({start} %){lost}."
    value += f" (zero-shot: {start} %)"
    gap = fixed(best - ranking[1][1], 1)
    ahead = f"level with {ranking[1][0]}" if float(gap) == 0 else f"{gap} points above {ranking[1][0]}"
    least = ""
    if forgetting:
        other = ", and" if forgetting[0][0] == first else f"; {forgetting[0][0]}"
        least = f"{other} {_forgets(forgetting[0][1], least=True)}"
    return f"{what}: {first} is the most accurate at the end, {value}, {ahead}{least}."


def _per_task(orders: Orders, setting: Setting) -> str:
    """What the only method gained on each task: where the classes learned so far count, among all of them."""
    scored: Setting = "mcil" if setting == SEEN else setting
    frames = [one.frame[one.frame["finished"]] for one in orders.comparisons]
    runs = [steps for frame in frames for _, steps in accuracies(frame, scored).groupby("run")]
    before, after = (pd.concat([steps.iloc[place] for steps in runs], axis=1).mean(axis=1) for place in (0, -1))
    if len(before) > PER_TASK:
        return f" It is above zero-shot on {(after > before).sum()} of {len(before)} tasks."
    values = (f"{task} {fixed(before[task], 1)} → {fixed(after[task], 1)}" for task in before.index)
    return f" Per task, zero-shot → at the end: {', '.join(values)}."


def _forgets(points: float, least: bool = False) -> str:
    """`forgets 2.0 points`, `forgets least, 2.0 points`; what is negative in words."""
    text = fixed(points, 1)
    if float(text) < 0:
        return f"forgets {'least' if least else 'nothing'}: earlier tasks gain {text[1:]} points"
    return f"forgets {'least, ' if least else ''}{text} points"
