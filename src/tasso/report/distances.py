"""How far images lie from the texts of their classes: histograms task by task, and a box plot of the classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from tasso.report.alignment import Distances, density
from tasso.report.colours import method_class
from tasso.report.groups import Comparison
from tasso.report.markup import Html, element, label, line, points, short
from tasso.report.tables import ZERO_SHOT, fixed

Scale = Callable[[float], float]

GRID = 0.1  # axes begin and end at multiples of it
_WIDTH, _HEIGHT = 300, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 292, 8, 118


@dataclass(frozen=True)
class Sample:
    """The distances of one method on one task, its runs together."""

    parts: tuple[Distances, ...]

    @property
    def mean(self) -> float:
        return fmean(part.mean for part in self.parts)

    @property
    def prototypes(self) -> list[float]:
        return [value for part in self.parts for value in part.prototypes]

    @property
    def ends(self) -> tuple[float, float]:
        return min(part.quantiles[0] for part in self.parts), max(part.quantiles[-1] for part in self.parts)

    @property
    def prototype_box(self) -> tuple[float, float, float, float, float]:
        return box(self.prototypes)


@dataclass(frozen=True)
class Measured:
    """All distances of a comparison. `bins` and `high` are those of every run in it."""

    bins: int
    high: float
    zero_shot: tuple[Sample, ...]
    methods: Mapping[str, tuple[Sample, ...]]
    runs: Mapping[str, int]

    def ends(self, *, prototypes: bool = False) -> tuple[float, float]:
        """Multiples of a tenth that enclose everything."""
        samples = [*self.zero_shot, *(sample for several in self.methods.values() for sample in several)]
        pairs = [(min(s.prototypes), max(s.prototypes)) if prototypes else s.ends for s in samples]
        low, high = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        return math.floor(low / GRID) * GRID, math.ceil(high / GRID) * GRID


def box(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Least, lower quartile, median, upper quartile, greatest."""
    if len(values) == 1:
        return (values[0],) * 5
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return min(values), lower, median(values), upper, max(values)


def measured(comparison: Comparison) -> Measured | None:
    """What the runs of a comparison have kept after the last task; None if none of them has."""
    found = [(run, run.alignment) for run in comparison.runs]
    kept = [(run, kept) for run, kept in found if kept is not None and kept.zero_shot and kept.last]
    scales = {(alignment.bins, alignment.high) for _, alignment in kept}
    if len(scales) != 1:  # none, or files whose histograms cannot be added
        return None
    size = len(comparison.tasks)
    (bins, high) = next(iter(scales))
    methods, runs = {}, {}
    for group in comparison.groups:
        mine = [alignment.last for run, alignment in kept if run.label == group.label and alignment.last]
        if mine:
            methods[group.label] = tuple(Sample(tuple(last[task] for last in mine)) for task in range(size))
            runs[group.label] = len(mine)
    start = [alignment.zero_shot for _, alignment in kept if alignment.zero_shot][:1]  # the same model in all runs
    zero_shot = tuple(Sample(tuple(first[task] for first in start)) for task in range(size))
    return Measured(bins, high, zero_shot, methods, runs)


def distance_panels(comparison: Comparison, found: Measured, methods: Mapping[str, int]) -> Html:
    """One histogram a task; all share one scale along the distances."""
    low, high = found.ends()
    panels = [_panel(name, task, found, methods, low, high) for task, name in enumerate(comparison.tasks)]
    return element("div", *panels, class_="panels", style="--cols:4")


def _panel(name: str, task: int, found: Measured, methods: Mapping[str, int], low: float, high: float) -> Html:
    groups = round(found.high / 0.02)  # bars of 0.02: fine enough to see the shape, coarse enough not to see noise

    def heights(sample: Sample) -> list[float]:
        return density(sample.parts, found.bins, groups)

    drawn = [(None, found.zero_shot[task]), *((label_, several[task]) for label_, several in found.methods.items())]
    shapes = {label_: heights(sample) for label_, sample in drawn}
    top = max(max(shape) for shape in shapes.values())

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - low) / (high - low)

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * value / top

    parts: list[str] = [line("grid", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)]
    marks = round((high - low) / GRID)
    for number in range(0, marks + 1, 1 if marks <= 6 else 2):
        value = low + number * GRID
        parts += [
            line("grid", x(value), _TOP, x(value), _BOTTOM),
            label(f"{value:.1f}", x(value), _BOTTOM + 14, "middle"),
        ]
    described = []
    for label_, sample in drawn:
        outline = points(_steps(shapes[label_], found.high / groups, low, high, x, y))
        text = f"{label_ or ZERO_SHOT}: mean distance {fixed(sample.mean, 3)}"
        described.append(text)
        if label_ is None:
            parts.append(element("polyline", class_="start-shape", points=outline))
        else:
            shape = element("polygon", class_="shape", points=outline)
            group = {"class_": method_class(methods[label_]), "data_method": f"method-{methods[label_]}"}
            parts.append(element("g", shape, **group, data_mean=fixed(sample.mean, 3)))
    words = f"Distances between images and class texts on {name}. " + "; ".join(described) + "."
    image = element(
        "svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", class_="panel shapes-of", role="img", aria_label=words,
        data_name=name, data_zero=fixed(found.zero_shot[task].mean, 3),
    )  # fmt: skip
    return element("figure", element("figcaption", element("span", f"{task + 1}", class_="number"), name), image)


def _steps(
    shape: Sequence[float], width: float, low: float, high: float, x: Scale, y: Scale
) -> list[tuple[float, float]]:
    """The outline of bars, from the floor to the floor."""
    places = [(x(low), y(0))]
    for number, share in enumerate(shape):
        left, right = max(number * width, low), min((number + 1) * width, high)
        if left < right - 1e-9:
            places += [(x(left), y(share)), (x(right), y(share))]
    return [*places, (x(high), y(0))]


def box_plot(comparison: Comparison, found: Measured, methods: Mapping[str, int]) -> Html:
    """Class by class, text against mean image: one row a task, one box a method."""
    low, high = found.ends(prototypes=True)
    names = list(found.methods)
    left, right, row = 130, 640, 14 * len(names) + 16
    height = row * len(comparison.tasks) + 34

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts: list[str] = []
    for number in range(round((high - low) / GRID) + 1):
        value = low + number * GRID
        parts += [
            line("grid", x(value), 4, x(value), height - 30),
            label(f"{value:.1f}", x(value), height - 14, "middle"),
        ]
    for task, name in enumerate(comparison.tasks):
        top = 8 + task * row
        parts.append(label(name, left - 10, top + 7 * len(names) + 4, "end"))
        start = x(found.zero_shot[task].prototype_box[2])
        parts.append(line("zero-shot", start, top, start, top + 14 * len(names)))
        for place, method in enumerate(names):
            parts.append(_box(name, method, found.methods[method][task], methods[method], x, top + 14 * place + 7))
    words = "Distances between class texts and the mean image of each class: quartiles, least and greatest."
    image = element(
        "svg", *parts, viewBox=f"0 0 {right + 10} {height}", class_="panel boxes", role="group", aria_label=words
    )
    caption = "Class texts against the mean image of each class (box: quartiles and median, line: all classes)"
    return element("figure", element("figcaption", caption), image)


def _box(task: str, method: str, sample: Sample, index: int, x: Scale, y: float) -> Html:
    least, lower, middle, upper, most = sample.prototype_box
    text = f"{method} on {task}: median {fixed(middle, 3)}, quartiles {fixed(lower, 3)} to {fixed(upper, 3)}"
    left, width = short(x(lower)), short(x(upper) - x(lower))
    return element(
        "g",
        element("rect", class_="hit", x=short(x(least)), y=short(y - 7), width=short(x(most) - x(least)), height=14),
        line("whisker", x(least), y, x(most), y),
        element("rect", class_="box", x=left, y=short(y - 4.5), width=width, height=9),
        line("middle", x(middle), y - 4.5, x(middle), y + 4.5),
        class_=f"dot {method_class(index)}", data_method=f"method-{index}", data_tip=text, role="img", aria_label=text,
    )  # fmt: skip
