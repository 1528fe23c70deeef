"""The figures themselves, for paper and for the page: each function draws one from rows of the table of results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from tasso.report.colours import heat_colour, heat_level, ink
from tasso.report.figures.style import MARK, PAPER, QUIET, WIDTH, ZERO_SHOT_STYLE, new_panels, on_paper, span_at_least
from tasso.report.figures.svg import tag
from tasso.report.frame import (
    SEEN,
    STEPS,
    Comparison,
    Orders,
    Setting,
    accuracies,
    distances,
    finished_metrics,
    run_table,
    step_accuracies,
    zero_shot_accuracy,
)
from tasso.report.looks import Look
from tasso.report.tables import CORE_METRICS, DASH, SETTING_NAMES, ZERO_SHOT, fixed, order_means

Looks = Mapping[str, Look]
BAR = 0.02  # width of a histogram's bars: fine enough to see the shape, coarse enough not to see noise
GRID = 0.1  # axes of distances begin and end at multiples of it
LEGEND_WIDTH, MARK_WIDTH = 125, 9  # of the figure, and of a mark with the space around it, in letters
PANEL = (2.1, 1.3)  # of the page, in inches
LEAST_SPAN = 4.0  # points: what differs by less is not worth a closer look
MEAN = "mean of all tasks"
SO_FAR = "all classes so far"
MOST_TASKS = 24  # of longer sequences, single tasks are not drawn
TICKS = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]


def _of(artist: Artist, look: Look, **attributes: str) -> None:
    """Tag a part of a figure as that of a method."""
    tag(artist, data_method=f"method-{look.number}", **attributes)


def columns_for(count: int) -> int:
    """Three or four columns of panels, whichever leaves fewer holes in the last row."""
    return count if count < 3 else min((4, 3), key=lambda columns: -count % columns)


def plain(text: str) -> str:
    """Text that can be drawn: control characters cannot."""
    return re.sub(r"[\x00-\x1f\x7f\ufffe\uffff]", "\ufffd", text)


def matrix(rows: pd.DataFrame, setting: Setting) -> Figure:
    """A run's accuracies as a heat map, coloured by the change against zero-shot, which is the first row.

    The outlined cells are the tasks just learned.
    """
    (run,) = run_table(rows).itertuples()
    tasks, size = run.order, len(run.order)
    width = min(WIDTH, 1.3 + 0.4 * (size + 1))
    figure, (panel,) = new_panels(1, 1, 0.95 + 0.26 * (size + 1), (0.38 * (size + 1), 0.26 * (size + 1)), width)
    names = [ZERO_SHOT, *(f"{number}. {task}" for number, task in enumerate(tasks, 1))]
    found = accuracies(rows, setting)
    found = found.assign(**{MEAN: found.mean(axis=1, skipna=False)}).to_numpy()
    described = f"{run.label}, seed {run.seed}: {SETTING_NAMES[setting]} accuracy in percent, tasks in columns"
    tag(panel, panel="matrix", class_="panel heat", role="group", aria_label=described, data_columns=str(size + 1))
    for step in range(size + 1):
        for column, task in enumerate((*tasks, "mean")):
            value = found[step, column] if step < len(found) else math.nan
            change = value - found[0, column]
            when = f"{task}, after {names[step]}" if step else f"{task}, before any task"
            if math.isnan(value):
                missing = "not measured: no checkpoint was left"
                if step >= len(found):
                    missing = "not learned yet"
                elif all(map(math.isnan, found[step])):
                    missing = "not evaluated after this task"
                tip = f"{when}\n{missing}"
            else:
                signed = f"{change:+.2f}".replace("-", "−")
                tip = f"{when}\n{fixed(value, 2)} %" + (f"\n{signed} against zero-shot" if step else "")
            _cell(panel, column, step, value, change, tip, learned=step == column + 1, mean=column == size)
    panel.set_title(SETTING_NAMES[setting] if on_paper() else "")
    panel.set_xlim(-0.5, size + 0.5)
    panel.set_ylim(size + 0.5, -0.5)
    panel.set_xticks(range(size + 1), [*map(plain, tasks), "mean"], rotation=50, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(size + 1), map(plain, names))
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    return figure


def _cell(panel: Axes, x: int, y: int, value: float, change: float, tip: str, *, learned: bool, mean: bool) -> None:
    if math.isnan(change):
        fill, page_fill, page_ink = PAPER, "var(--panel)", "var(--text)"
    else:
        level = heat_level(change)
        fill, page_fill, page_ink = heat_colour(level), f"var(--h{level})", f"var(--i{level})"
    edge = MARK if learned else "none"
    face = Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=fill, edgecolor=edge, linewidth=1.2, clip_on=False)
    tag(face, class_="cell learned" if learned else "cell", tip=tip, fill=page_fill)
    panel.add_artist(face)  # add_patch would work out the limits of the axes again for each cell
    text = DASH if math.isnan(value) else fixed(value, 1)
    weight = "bold" if learned or mean else "normal"
    written = panel.text(x, y, text, ha="center", va="center", fontsize=7, color=ink(fill), weight=weight)
    tag(written, fill=page_ink)
    for artist in (face, written):
        artist.set_in_layout(False)  # within the axes, so that nothing needs to be measured


def curves(comparison: Comparison, setting: Setting, looks: Looks, *, with_tasks: bool = True) -> Figure:
    """The mean accuracy over the sequence, then that of each task, a panel each, with its zero-shot line.

    Scored against the classes learned so far, the first panel is the accuracy over all their images. A long sequence
    has this panel only, as has one without `with_tasks`.
    Each panel has a scale of its own, as fine as its values allow: domains differ more than methods do.
    """
    size = len(comparison.tasks)
    found = accuracies(comparison.frame, setting)
    whole = pd.DataFrame({MEAN: found.mean(axis=1, skipna=False)})
    if setting == SEEN:
        whole = step_accuracies(comparison.frame).rename(columns={STEPS[0]: SO_FAR}).reindex(found.index)
    names = [whole.columns[0], *(comparison.tasks if with_tasks and size <= MOST_TASKS else ())]
    columns = columns_for(len(names))
    height = 1.45 if len(names) > 1 else 2.3
    figure, panels = new_panels(len(names), columns, 0.5 + height * -(-len(names) // columns), PANEL, sharex=True)
    found = found.assign(**{names[0]: whole[names[0]]})
    owners = comparison.runs["label"].reindex(found.index.get_level_values("run")).to_numpy()
    for task, (panel, name) in enumerate(zip(panels, names, strict=True)):
        if name == SO_FAR:
            before = whole[STEPS[1]].groupby("step").agg(fmean)
            panel.plot(before.index, before, **ZERO_SHOT_STYLE)
            start = before.iloc[-1]
        else:
            start = fmean(found[name].xs(0, level="step"))
            panel.axhline(start, **ZERO_SHOT_STYLE)
        if task:
            panel.axvline(task, color=QUIET, linewidth=0.6)
        described: list[str] = []
        for label in comparison.labels:  # the last lies on top
            look = looks[label]
            by_step = found.loc[owners == label, name].groupby("step")
            means = by_step.agg(fmean)
            known = means.dropna()  # of a thinned run, the points that exist are joined
            if (by_step.size() > 1).any():
                low, high = by_step.min()[known.index], by_step.max()[known.index]
                band = panel.fill_between(known.index, low, high, color=look.colour, alpha=0.15, linewidth=0)
                _of(band, look)
            marked = {task, means.index[-1]} - {0}
            thinned = means.iloc[1:].isna().any()  # then the points themselves are marked
            marks = [place for place, step in enumerate(known.index) if step in marked or thinned]
            (line,) = panel.plot(
                known.index, known, marker=look.marker, markevery=marks, markersize=4, clip_on=False, **look.line
            )
            values = [DASH if math.isnan(mean) else fixed(mean, 1) for mean in means]
            _of(line, look, data_values=" ".join(values))
            learned = f"{values[task]} when learned, " if 0 < task < len(values) else ""
            described.append(f"{look.name} {learned}{values[-1]} at the end")
        which = f"{name}, task {task} of {size}" if task else name
        summary = f"{SETTING_NAMES[setting]} accuracy: {which}, in percent. "
        summary += f"Zero-shot {fixed(start, 1)}. " + "; ".join(described) + "."
        panel.set_title(plain(f"{task}  {name}" if task else name))
        panel.set_xticks(range(0, size + 1, next(step for step in TICKS if size <= step * MOST_TASKS)))
        panel.set_xlim(0, size + 0.35)
        panel.margins(y=0.08)
        span_at_least(panel, LEAST_SPAN)
        tag(panel, panel="curves", class_="panel steps", role="img", aria_label=summary, data_name=name,
            data_zero=fixed(start, 1), data_size=str(size), data_high=f"{size + 0.35}")  # fmt: skip
        tag(panel.patch, class_="plot")
    figure.supxlabel("tasks learned", fontsize=8, color=QUIET)
    figure.supylabel(f"{SETTING_NAMES[setting]} accuracy (%)", fontsize=8, color=QUIET)
    _legend(figure, comparison.labels, looks)
    return figure


def trade_off(orders: Orders, setting: Setting, looks: Looks) -> Figure:
    """Accuracy against forgetting, and beside it against zero-shot degradation: a mark per method, its mean."""
    accuracy, *losses = CORE_METRICS
    found = finished_metrics(orders.frame, setting)
    ys, _ = order_means(orders, setting, accuracy)
    start = zero_shot_accuracy(orders.frame, setting)
    figure, panels = new_panels(2, 2, 3.1, (3.6, 2.3))
    for panel, metric in zip(panels, losses, strict=True):
        xs, _ = order_means(orders, setting, metric)
        panel.axhline(start, **ZERO_SHOT_STYLE)
        panel.axvline(0, color=QUIET, linewidth=0.6)
        for label, x, y in zip(orders.labels, xs, ys, strict=True):
            if not isinstance(x.value, float) or not isinstance(y.value, float):
                continue
            look, mine = looks[label], found[found["label"] == label]
            style: dict[str, Any] = {"color": look.colour, "clip_on": False}
            runs = f"mean of {len(mine)} runs" if len(mine) > 1 else "1 run"
            tip = f"{look.name}\naccuracy {y.text}\n{metric.name.lower()} {x.text}\n{runs}"
            if len(mine) > 1:
                dx, dy = stdev(mine[metric.key]), stdev(mine[accuracy.key])
                across, upwards = [x.value - dx, x.value + dx], [y.value - dy, y.value + dy]
                for bar in ((across, [y.value] * 2), ([x.value] * 2, upwards)):
                    _of(panel.plot(*bar, linewidth=0.8, alpha=0.5, **style)[0], look)
            (mark,) = panel.plot([x.value], [y.value], marker=look.marker, linestyle="none", markersize=6.5,
                                 markeredgecolor=PAPER, markeredgewidth=0.5, **style)  # fmt: skip
            _of(mark, look)
            if not on_paper():  # invisible, and easier to point at
                (target,) = panel.plot([x.value], [y.value], marker="o", markersize=14, alpha=0, **style)
                _of(target, look, class_="dot", tip=tip, role="img")
        panel.set_xlabel(f"{metric.name.lower()} (points, lower is better)")
        panel.set_ylabel(f"{SETTING_NAMES[setting]} accuracy (%, higher is better)")
        panel.margins(0.1)
        summary = f"{SETTING_NAMES[setting]}: accuracy (upwards) against {metric.name.lower()} (to the right). "
        tag(panel, panel="trade-off", class_="panel scatter", role="group",
            aria_label=f"{summary}Zero-shot accuracy {fixed(start, 1)}.")  # fmt: skip
    _legend(figure, orders.labels, looks)
    return figure


# -- distances between images and class texts --------------------------------------------------------------------------


def measured(comparison: Comparison) -> pd.DataFrame:
    """Distances of the runs that have them at the start and after the last task; empty if they cannot be pooled.

    The rows of the pretrained model have the label `ZERO_SHOT`: they are the same in all runs, so one is enough.
    """
    found = distances(comparison.frame)
    last = found[found["step"] == len(comparison.tasks)]
    first = found[(found["step"] == 0) & found["run"].isin(last["run"])]
    last = last[last["run"].isin(first["run"])]
    if len({(row.bins, row.range) for row in last.itertuples()}) != 1:  # none, or histograms that cannot be added
        return found[:0].assign(label="")
    runs = [run for run in comparison.runs.index if run in set(last["run"])]
    start = first[first["run"] == runs[0]].assign(label=ZERO_SHOT)
    return pd.concat([start, last.assign(label=last["run"].map(comparison.runs["label"]))], ignore_index=True)


def histograms(comparison: Comparison, found: pd.DataFrame, labels: Sequence[str], looks: Looks) -> Figure:
    """Distances of images to the texts of their classes on every task, methods over each other."""
    size = len(comparison.tasks)
    columns = columns_for(size)
    low, high = _ends(found)
    bars = round(found["range"].iloc[0] / BAR)
    first, last = round(low / BAR), round(high / BAR)
    edges = [number * BAR for number in range(first, last + 1)]
    figure, panels = new_panels(
        size, columns, 0.5 + 1.3 * -(-size // columns), (PANEL[0], 1.0), sharex=True, sharey=True
    )
    for task, (panel, name) in enumerate(zip(panels, comparison.tasks, strict=True), 1):
        here = found[found["task"] == name]
        means = {label: fixed(fmean(here[here["label"] == label]["mean"]), 3) for label in (ZERO_SHOT, *labels)}
        shapes = {label: _shares(here[here["label"] == label], bars)[first:last] for label in means}
        panel.stairs(shapes[ZERO_SHOT], edges, **ZERO_SHOT_STYLE)
        for label in labels:
            look = looks[label]
            _of(panel.stairs(shapes[label], edges, color=look.colour, fill=True, alpha=0.2), look)
            outline = panel.stairs(shapes[label], edges, linewidth=1.1, **look.line)
            _of(outline, look, data_values=means[label])
        panel.set_title(plain(f"{task}  {name}"))
        panel.set_xlim(low, high)
        panel.tick_params(labelleft=False)  # the shape is what counts
        summary = f"Distances between images and class texts on {name}. "
        summary += "; ".join(f"{label}: mean distance {mean}" for label, mean in means.items()) + "."
        tag(panel, panel="histogram", class_="panel shapes-of", role="img", aria_label=summary, data_name=name,
            data_zero=means[ZERO_SHOT])  # fmt: skip
        tag(panel.patch, class_="plot")
    figure.supxlabel("distance to the class text (1 − cosine; lower is better)", fontsize=8, color=QUIET)
    figure.supylabel("share of images", fontsize=8, color=QUIET)
    _legend(figure, labels, looks, filled=True)
    return figure


def boxes(comparison: Comparison, found: pd.DataFrame, labels: Sequence[str], looks: Looks) -> Figure:
    """Distances of class means to the class texts as boxes, tasks stacked: quartiles, median, minimum and maximum."""
    size = len(comparison.tasks)
    row = 0.14 * len(labels) + 0.14
    figure, (panel,) = new_panels(1, 1, 0.8 + row * size, (4.6, row * size), WIDTH * 0.75)
    height = 0.8 / len(labels)
    for task, name in enumerate(comparison.tasks):
        here = found[found["task"] == name]
        for number, label in enumerate(labels):
            five = _five(here[here["label"] == label])
            y = task + height * (number - (len(labels) - 1) / 2)
            middle = f"median {fixed(five[2], 3)}\nquartiles {fixed(five[1], 3)} to {fixed(five[3], 3)}"
            _box(panel, five, y, 0.35 * height, looks[label], f"{looks[label].name} on {name}\n{middle}")
        start = _five(here[here["label"] == ZERO_SHOT])[2]
        panel.plot([start, start], [task - 0.45, task + 0.45], **ZERO_SHOT_STYLE)
    panel.set_yticks(range(size), map(plain, comparison.tasks))
    panel.set_ylim(size - 0.5, -0.5)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("distance to the class text (1 − cosine; lower is better)")
    summary = "Distances between class texts and the mean image of each class: quartiles, minimum and maximum."
    tag(panel, panel="boxes", class_="panel boxes", role="group", aria_label=summary)
    _legend(figure, labels, looks, filled=True)
    return figure


def _ends(found: pd.DataFrame) -> tuple[float, float]:
    """Multiples of a tenth that enclose everything."""
    values = [value for several in found["quantiles"] for value in several]
    return math.floor(min(values) / GRID) * GRID, math.ceil(max(values) / GRID) * GRID


def _shares(rows: pd.DataFrame, bars: int) -> list[float]:
    """The share of images in each bar; all runs together."""
    totals = [0.0] * bars
    whole = rows["count"].sum()
    for row in rows.itertuples():
        for number, count in enumerate(row.histogram, row.first_bin):
            totals[min(number * bars // int(row.bins), bars - 1)] += count / whole
    return totals


def _five(rows: pd.DataFrame) -> tuple[float, ...]:
    """Minimum, quartiles and median, maximum over the classes, all runs together."""
    values = [value for several in rows["classes"] for value in several]
    return tuple(np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))


def _box(panel: Axes, five: Sequence[float], y: float, half: float, look: Look, tip: str) -> None:
    least, lower, middle, upper, most = five
    shade = look.colour
    (line,) = panel.plot([least, most], [y, y], color=shade, linewidth=1)
    corner, width, height = (lower, y - half), upper - lower, 2 * half
    face = Rectangle(corner, width, height, facecolor=PAPER, edgecolor="none", zorder=2.1)
    tint = Rectangle(corner, width, height, facecolor=(shade, 0.35), edgecolor=shade, linewidth=1, zorder=2.2)
    (bar,) = panel.plot([middle, middle], [y - half, y + half], color=MARK, linewidth=1.4, zorder=2.3)
    for artist in (line, face, bar):
        _of(artist, look)
    _of(tint, look, class_="dot", tip=tip, role="img")
    for patch in (face, tint):
        panel.add_patch(patch)


# -- legends -----------------------------------------------------------------------------------------------------------


def _legend(figure: Figure, labels: Sequence[str], looks: Looks, *, filled: bool = False) -> None:
    """Above the panels, in as many columns as fit; the page has a legend of its own."""
    if not on_paper():
        return
    handles: list[Any] = []
    for look in (looks[label] for label in labels):
        if filled:
            handles.append(Patch(facecolor=(look.colour, 0.35), edgecolor=look.colour, label=plain(look.text)))
        else:
            handles.append(Line2D([], [], marker=look.marker, markersize=5, label=plain(look.text), **look.line))
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
