"""The figures themselves. Each function draws one and returns it; captions are made beside them, in `write`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from tasso.report.alignment import density, shares
from tasso.report.collect import SETTINGS, RunResult, Setting
from tasso.report.colours import heat_colour, ink
from tasso.report.distances import Measured, Sample
from tasso.report.figures.style import (
    QUIET,
    WIDTH,
    ZERO_SHOT_STYLE,
    colour,
    equal_spans,
    grid_of,
    heat_colours,
    marker,
    new_figure,
)
from tasso.report.groups import Comparison, Group
from tasso.report.scatter import points_of
from tasso.report.tables import SETTING_NAMES, ZERO_SHOT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Methods = Mapping[str, int]
BAR = 0.02  # width of a histogram's bars
LEGEND_WIDTH, MARK_WIDTH = 125, 9  # of the figure, and of a mark with the space around it, in letters


def matrices(run: RunResult) -> Figure:
    """A run's accuracies as heat maps, MTIL beside MCIL; the outlined cells are the tasks just learned."""
    from matplotlib.patches import Rectangle

    size = len(run.tasks)
    figure = new_figure(0.95 + 0.26 * (size + 1))
    names = [ZERO_SHOT, *(f"{number + 1}. {task}" for number, task in enumerate(run.tasks))]
    panels = figure.subplots(1, 2, sharey=True)
    for panel, setting in zip(panels, SETTINGS, strict=True):
        result = run.setting(setting)
        rows = [result.zero_shot, *result.matrix]
        image = panel.imshow(rows, cmap=heat_colours(), vmin=0, vmax=100, aspect="auto")
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                learned = y == x + 1
                if math.isnan(value):  # an extended run whose early model was gone
                    panel.text(x, y, "–", ha="center", va="center", fontsize=6.5, color=QUIET)
                    continue
                panel.text(
                    x, y, f"{value:.1f}", ha="center", va="center", fontsize=6.5,
                    color=ink(heat_colour(min(max(value / 100, 0), 1), 0)), weight="bold" if learned else "normal",
                )  # fmt: skip
                if learned:
                    frame = Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.2)
                    frame.set_clip_on(False)  # cells at the edge have a whole frame too
                    panel.add_patch(frame)
        panel.axhline(0.5, color="white", linewidth=3, zorder=0.5)  # below the frames
        panel.set_title(SETTING_NAMES[setting])
        panel.set_xticks(range(size), run.tasks, rotation=50, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(len(rows)), names[: len(rows)])
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.01)
    bar.outline.set_visible(False)
    bar.set_label("accuracy (%)")
    return figure


def curves(comparison: Comparison, setting: Setting, methods: Methods) -> Figure:
    """Accuracy of each task over the sequence, one panel a task, with its zero-shot line.

    A point is as high in all panels, but each has its own level: domains differ more than methods do.
    """
    size = len(comparison.tasks)
    columns = min(4, size)
    figure = new_figure(0.5 + 1.45 * -(-size // columns))
    panels = grid_of(figure, size, columns, own_levels=True)
    for task, panel in enumerate(panels):
        panel.axhline(comparison.zero_shot(setting)[task], **ZERO_SHOT_STYLE)
        panel.axvline(task + 1, color=QUIET, linewidth=0.6)
        for group in reversed(comparison.groups):  # the first lies on top
            index = methods[group.label]
            series = _series(group, setting, task)
            steps = list(range(len(series)))
            means = [fmean(values) for values in series]
            if len(group.runs) > 1:
                low, high = [min(v) for v in series], [max(v) for v in series]
                panel.fill_between(steps, low, high, color=colour(index), alpha=0.15, linewidth=0)
            marks = [step for step in (task + 1, len(series) - 1) if task + 1 <= step < len(series)]
            panel.plot(steps, means, color=colour(index), marker=marker(index), markevery=marks, markersize=4)
        panel.set_title(f"{task + 1}  {comparison.tasks[task]}", loc="left")
        panel.set_xticks(range(size + 1))
        panel.set_xlim(0, size + 0.35)
    equal_spans(panels)
    figure.supxlabel("tasks learned", fontsize=8, color=QUIET)
    figure.supylabel(f"{SETTING_NAMES[setting]} accuracy (%)", fontsize=8, color=QUIET)
    _legend(figure, comparison.groups, methods)
    return figure


def _series(group: Group, setting: Setting, task: int) -> list[list[float]]:
    """Per step, the values of the runs that got that far; step 0 is the starting model."""
    series = [[run.setting(setting).zero_shot[task] for run in group.runs]]
    for step in range(max(run.learned for run in group.runs)):
        series.append([run.setting(setting).matrix[step][task] for run in group.runs if run.learned > step])
    return series


def trade_off(comparison: Comparison, methods: Methods) -> Figure | None:
    """Forgetting against accuracy, MTIL beside MCIL; None where there is nothing to show."""
    if not any(points_of(group, setting) for group in comparison.groups for setting in SETTINGS):
        return None
    figure = new_figure(3.3)
    for panel, setting in zip(figure.subplots(1, 2), SETTINGS, strict=True):
        panel.axhline(fmean(comparison.zero_shot(setting)), **ZERO_SHOT_STYLE)
        for group in reversed(comparison.groups):
            places, index = points_of(group, setting), methods[group.label]
            if not places:
                continue
            xs, ys = [x for x, _ in places], [y for _, y in places]
            spread: dict[str, Any] = {"xerr": stdev(xs), "yerr": stdev(ys)} if len(places) > 1 else {}
            panel.errorbar(
                fmean(xs), fmean(ys), **spread, color=colour(index), marker=marker(index), markersize=6, elinewidth=0.8,
                linestyle="none",
            )  # fmt: skip
        panel.set_title(SETTING_NAMES[setting], loc="left")
        panel.set_xlabel("forgetting (points, lower is better)")
        panel.set_ylabel("accuracy (%, higher is better)")
        panel.margins(0.12)
    _legend(figure, comparison.groups, methods)
    return figure


def domains(comparison: Comparison, setting: Setting, methods: Methods) -> Figure:
    """A slope chart a domain: zero-shot, just learned, at the end."""
    size = len(comparison.tasks)
    columns = min(4, size)
    figure = new_figure(0.45 + 1.45 * -(-size // columns))
    panels = grid_of(figure, size, columns, own_levels=True)
    for task, panel in enumerate(panels):
        for group in reversed(comparison.groups):
            index = methods[group.label]
            runs = group.finished
            if not runs:
                continue
            results = [run.setting(setting) for run in runs]
            values = [
                fmean(result.zero_shot[task] for result in results),
                fmean(result.matrix[task][task] for result in results),
                fmean(result.matrix[-1][task] for result in results),
            ]
            panel.plot(range(3), values, color=colour(index), marker=marker(index), markersize=4)
        panel.set_title(f"{task + 1}  {comparison.tasks[task]}", loc="left")
        panel.set_xticks(range(3), ["zero-shot", "learned", "end"])
        panel.set_xlim(-0.2, 2.2)
    equal_spans(panels)
    figure.supylabel(f"{SETTING_NAMES[setting]} accuracy (%)", fontsize=8, color=QUIET)
    _legend(figure, comparison.groups, methods, zero_shot=False)
    return figure


def histograms(
    comparison: Comparison, found: Measured, pair: Sequence[str], methods: Methods, *, prototypes: bool
) -> Figure:
    """Distances to the class texts on every task, two methods over each other."""
    size = len(comparison.tasks)
    columns = min(4, size)
    low, high = found.ends(prototypes=prototypes)
    groups = round(found.high / BAR)
    edges = [number * BAR for number in range(groups + 1)]
    figure = new_figure(0.5 + 1.3 * -(-size // columns))

    def heights(sample: Sample) -> list[float]:
        if prototypes:
            return shares(sample.prototypes, found.high, groups)
        return density(sample.parts, found.bins, groups)

    for task, panel in enumerate(grid_of(figure, size, columns)):
        panel.stairs(heights(found.zero_shot[task]), edges, **ZERO_SHOT_STYLE)
        for label in pair:
            shape = heights(found.methods[label][task])
            panel.stairs(shape, edges, fill=True, color=colour(methods[label]), alpha=0.3)
            panel.stairs(shape, edges, color=colour(methods[label]), linewidth=1.1)
        panel.set_title(f"{task + 1}  {comparison.tasks[task]}", loc="left")
        panel.set_xlim(low, high)
    what = "classes" if prototypes else "images"
    figure.supxlabel("distance to the class text (1 − cosine; lower is better)", fontsize=8, color=QUIET)
    figure.supylabel(f"share of {what}", fontsize=8, color=QUIET)
    _legend(figure, [group for group in comparison.groups if group.label in pair], methods, filled=True)
    return figure


def boxes(
    comparison: Comparison, found: Measured, pair: Sequence[str], methods: Methods, *, prototypes: bool
) -> Figure:
    """The same distances as boxes, tasks stacked: quartiles, median, least and greatest."""
    size = len(comparison.tasks)
    figure = new_figure(0.8 + 0.42 * size, WIDTH * 0.75)
    panel = figure.subplots()
    for task in range(size):
        for place, label in enumerate(pair):
            _box(
                panel, found.methods[label][task], task + 0.18 * (2 * place - len(pair) + 1), methods[label], prototypes
            )
        middle = _five(found.zero_shot[task], prototypes)[2]
        panel.plot([middle, middle], [task - 0.38, task + 0.38], **ZERO_SHOT_STYLE)
    panel.set_yticks(range(size), comparison.tasks)
    panel.set_ylim(size - 0.5, -0.5)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("distance to the class text (1 − cosine; lower is better)")
    _legend(figure, [group for group in comparison.groups if group.label in pair], methods, filled=True)
    return figure


def _five(sample: Sample, prototypes: bool) -> tuple[float, ...]:
    """Least, quartiles and median, greatest; of several runs their means, where only these were kept."""
    if prototypes:
        return sample.prototype_box
    return tuple(fmean(values) for values in zip(*(part.quantiles for part in sample.parts), strict=True))


def _box(panel: Axes, sample: Sample, y: float, index: int, prototypes: bool) -> None:
    from matplotlib.patches import Rectangle

    least, lower, middle, upper, most = _five(sample, prototypes)
    panel.plot([least, most], [y, y], color=colour(index), linewidth=1)
    face = Rectangle((lower, y - 0.13), upper - lower, 0.26, facecolor="white", edgecolor="none", zorder=2.1)
    panel.add_patch(face)
    tint: dict[str, Any] = {"facecolor": (colour(index), 0.35), "edgecolor": colour(index), "zorder": 2.2}
    panel.add_patch(Rectangle((lower, y - 0.13), upper - lower, 0.26, linewidth=1, **tint))
    panel.plot([middle, middle], [y - 0.13, y + 0.13], color="black", linewidth=1.4, zorder=2.3)


def _legend(
    figure: Figure, groups: Sequence[Group], methods: Methods, *, zero_shot: bool = True, filled: bool = False
) -> None:
    """Above the panels, in as many columns as fit."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=(colour(methods[group.label]), 0.35), edgecolor=colour(methods[group.label]), label=group.label)
        if filled
        else Line2D(
            [], [], color=colour(methods[group.label]), marker=marker(methods[group.label]), markersize=5,
            label=group.label,
        )
        for group in groups
    ]  # fmt: skip
    if zero_shot:
        handles.append(Line2D([], [], label=ZERO_SHOT, **ZERO_SHOT_STYLE))
    columns = legend_columns([len(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def legend_columns(lengths: Sequence[int]) -> int:
    """In how many columns labels of these lengths fit; matplotlib fills column by column, the first ones longer."""
    for count in range(len(lengths), 1, -1):
        rows, longer = divmod(len(lengths), count)
        starts = [column * rows + min(column, longer) for column in range(count + 1)]
        widths = [max(lengths[start:end]) for start, end in pairwise(starts)]
        if sum(widths) + MARK_WIDTH * count <= LEGEND_WIDTH:
            return count
    return 1
