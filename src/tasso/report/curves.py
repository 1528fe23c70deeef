"""Accuracy over the sequence: one small panel per task, one line per method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from tasso.report.collect import Setting
from tasso.report.colours import mark, method_class
from tasso.report.groups import Comparison, Group
from tasso.report.markup import Html, element, label, line
from tasso.report.markup import points as places
from tasso.report.tables import DASH, SETTING_NAMES, fixed

_Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 300, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 30, 292, 10, 160


def curves(comparison: Comparison, setting: Setting, methods: Mapping[str, int]) -> Html:
    """All panels of one comparison; they share one scale, so that heights can be compared across tasks."""
    low, high = _range(comparison, setting)
    panels = [_panel(comparison, setting, task, methods, low, high) for task in range(len(comparison.tasks))]
    return element("div", *panels, class_="panels", style=f"--cols:{_columns(len(panels))}")


def _columns(count: int) -> int:
    """Three or four columns, whichever leaves fewer holes in the last row."""
    return count if count < 3 else min((4, 3), key=lambda columns: -count % columns)


def _range(comparison: Comparison, setting: Setting) -> tuple[int, int]:
    """The shared y axis in whole twenties; at least forty points, so that noise does not look like news."""
    values = list(comparison.zero_shot(setting))
    for run in comparison.runs:
        values += [value for row in run.setting(setting).matrix for value in row if not math.isnan(value)]
    low, high = math.floor(min(values) / 20) * 20, math.ceil(max(values) / 20) * 20
    while high - low < 40:
        low, high = max(0, low - 20), min(100, high + 20)
    return low, high


def _panel(
    comparison: Comparison,
    setting: Setting,
    task: int,
    methods: Mapping[str, int],
    low: int,
    high: int,
) -> Html:
    size = len(comparison.tasks)
    name = comparison.tasks[task]
    zero_shot = comparison.zero_shot(setting)[task]

    def x(step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / size

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    tick = 20 if high - low > 40 else 10
    parts: list[str] = []
    for level in range(low, high + 1, tick):
        parts.append(line("grid", _LEFT, y(level), _RIGHT, y(level)))
        parts.append(label(str(level), _LEFT - 5, y(level) + 3.5, "end"))
    for step in range(size + 1):
        parts.append(label(str(step), x(step), _BOTTOM + 14, "middle"))
    parts.append(label("tasks learned", (_LEFT + _RIGHT) / 2, _BOTTOM + 27, "middle"))
    parts.append(line("learned-at", x(task + 1), _TOP, x(task + 1), _BOTTOM))
    parts.append(line("zero-shot", _LEFT, y(zero_shot), _RIGHT, y(zero_shot)))

    described = []
    for group in comparison.groups:
        series = _series(group, setting, task)
        means = [fmean(values) for values in series]
        parts.append(_method(group, series, task, methods[group.label], x, y))
        if len(means) > task + 1 and not math.isnan(means[task + 1]):
            learned, last = fixed(means[task + 1], 1), fixed(means[-1], 1)
            described.append(f"{group.label} {learned} when learned, {last} at the end")
    parts.append(element("line", class_="cursor", y1=_TOP, y2=_BOTTOM))  # the script puts it where the reader points
    summary = f"{SETTING_NAMES[setting]} accuracy on {name}, task {task + 1} of {size}, in percent. "
    summary += f"Zero-shot {fixed(zero_shot, 1)}. " + "; ".join(described) + "."
    image = element(
        "svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=summary, class_="panel steps",
        data_name=name, data_zero=fixed(zero_shot, 1), data_size=size, data_left=_LEFT, data_right=_RIGHT,
    )  # fmt: skip
    caption = element("figcaption", element("span", f"{task + 1}", class_="number"), name)
    return element("figure", caption, image)


def _series(group: Group, setting: Setting, task: int) -> list[list[float]]:
    """Per step, the values of the runs that got that far; step 0 is the starting model."""
    series = [[run.setting(setting).zero_shot[task] for run in group.runs]]
    for step in range(max(run.learned for run in group.runs)):
        series.append([run.setting(setting).matrix[step][task] for run in group.runs if run.learned > step])
    return series


def _method(
    group: Group,
    series: Sequence[Sequence[float]],
    task: int,
    index: int,
    x: _Scale,
    y: _Scale,
) -> Html:
    parts: list[str] = []
    means = [fmean(values) for values in series]
    known = [step for step, mean in enumerate(means) if not math.isnan(mean)]
    points = {step: (x(step), y(means[step])) for step in known}
    if len(group.runs) > 1:  # the range between the lowest and the highest seed
        upper = [(x(step), y(max(series[step]))) for step in known]
        lower = [(x(step), y(min(series[step]))) for step in known]
        parts.append(element("polygon", class_="band", points=places([*upper, *reversed(lower)])))
    parts.append(element("polyline", class_="curve", points=places(list(points.values()))))
    if task + 1 in points:
        parts.append(mark(index, *points[task + 1], 4.5))
    if len(series) > task + 2 and len(series) - 1 in points:  # at the end too, to follow a line without its colour
        parts.append(mark(index, *points[len(series) - 1], 3.2))
    values = " ".join(DASH if math.isnan(mean) else fixed(mean, 1) for mean in means)
    return element(
        "g", *parts, class_=method_class(index), data_method=f"method-{index}", data_values=values,
    )  # fmt: skip
