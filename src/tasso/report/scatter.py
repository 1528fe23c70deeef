"""Forgetting against accuracy: one mark a method, and a small one for each of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from tasso.report.collect import Setting
from tasso.report.colours import mark, method_class
from tasso.report.groups import Comparison, Group
from tasso.report.markup import Html, element, label, line, short
from tasso.report.tables import SETTING_NAMES, fixed

_WIDTH, _HEIGHT = 520, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 508, 12, 272
_MOST_STEPS = 5
_STEPS = (0.2, 0.5, 1, 2, 5, 10, 20, 25)


def scatter(comparison: Comparison, setting: Setting, methods: Mapping[str, int]) -> Html | None:
    """None where no method has both numbers: a single task is never forgotten."""
    found = {group.label: places for group in comparison.groups if (places := points_of(group, setting))}
    if not found:
        return None
    everything = [place for places in found.values() for place in places]
    zero_shot = fmean(comparison.zero_shot(setting))
    xs = ticks([x for x, _ in everything], 0.0)
    ys = ticks([y for _, y in everything], zero_shot)

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - xs[0]) / (xs[-1] - xs[0])

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - ys[0]) / (ys[-1] - ys[0])

    parts: list[str] = []
    for value in ys:
        parts += [line("grid", _LEFT, y(value), _RIGHT, y(value)), label(f"{value:g}", _LEFT - 6, y(value) + 4, "end")]
    for value in xs:
        parts += [
            line("grid", x(value), _TOP, x(value), _BOTTOM),
            label(f"{value:g}", x(value), _BOTTOM + 16, "middle"),
        ]
    parts.append(line("zero-shot", _LEFT, y(zero_shot), _RIGHT, y(zero_shot)))
    parts.append(label("forgetting (points, lower is better)", (_LEFT + _RIGHT) / 2, _BOTTOM + 36, "middle"))
    for name, places in found.items():
        index = methods[name]
        mean = (fmean(p[0] for p in places), fmean(p[1] for p in places))
        runs = f"mean of {len(places)} runs" if len(places) > 1 else "1 run"
        text = f"{name}: accuracy {fixed(mean[1], 2)}, forgetting {fixed(mean[0], 2)} ({runs})"
        small = [mark(index, x(px), y(py), 2.4) for px, py in places] if len(places) > 1 else []
        hit = element("circle", class_="hit", cx=short(x(mean[0])), cy=short(y(mean[1])), r=11)  # easier to point at
        marks = [*small, hit, mark(index, x(mean[0]), y(mean[1]), 6)]
        about = {"class_": f"dot {method_class(index)}", "data_method": f"method-{index}"}
        parts.append(element("g", *marks, **about, data_tip=text, role="img", aria_label=text))
    words = f"{SETTING_NAMES[setting]}, in percent: accuracy (upwards) against forgetting (to the right). "
    words += f"Zero-shot accuracy {fixed(zero_shot, 1)}."
    image = element(
        "svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", class_="panel scatter", role="group", aria_label=words
    )
    return element("figure", element("figcaption", "accuracy", class_="axis"), image)


def points_of(group: Group, setting: Setting) -> list[tuple[float, float]]:
    """(forgetting, accuracy) of every finished run that has both."""
    found = []
    for run in group.finished:
        forgetting, accuracy = (run.setting(setting).metrics[key] for key in ("forgetting", "accuracy"))
        if forgetting is not None and accuracy is not None:
            found.append((forgetting, accuracy))
    return found


def ticks(values: Sequence[float], line: float) -> list[float]:
    """Round numbers that enclose all values with a little room, and the line; at least two."""
    room = 0.04 * (max(values) - min(values))
    low, high = min(min(values) - room, line), max(max(values) + room, line)
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_STEPS), _STEPS[-1])
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [round(number * step, 6) for number in range(first, last + 1)]
