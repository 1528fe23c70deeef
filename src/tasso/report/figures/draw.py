"""The figures themselves, for paper and for the page: each function draws one from rows of the table of results.

`methods` gives each label its number, which decides its colour and its mark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, quantiles, stdev
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from tasso.report.colours import colour, heat_colour, heat_level, ink, marker
from tasso.report.figures.style import MARK, PAPER, QUIET, WIDTH, ZERO_SHOT_STYLE, equal_spans, new_panels, on_paper
from tasso.report.figures.svg import tag
from tasso.report.frame import (
    SETTINGS,
    Comparison,
    Setting,
    accuracies,
    distances,
    finished_metrics,
    run_table,
    zero_shot,
)
from tasso.report.tables import DASH, SETTING_NAMES, ZERO_SHOT, fixed

Methods = Mapping[str, int]
BAR = 0.02  # width of a histogram's bars: fine enough to see the shape, coarse enough not to see noise
GRID = 0.1  # axes of distances begin and end at multiples of it
LEGEND_WIDTH, MARK_WIDTH = 125, 9  # of the figure, and of a mark with the space around it, in letters
PANEL = (2.1, 1.3)  # of the page, in inches


def _of(artist: Artist, methods: Methods, label: str, **attributes: str) -> None:
    """Tag a part of a figure as that of a method."""
    tag(artist, data_method=f"method-{methods[label]}", **attributes)


def columns_for(count: int) -> int:
    """Three or four columns of panels, whichever leaves fewer holes in the last row."""
    return count if count < 3 else min((4, 3), key=lambda columns: -count % columns)


def plain(text: str) -> str:
    """Text that can be drawn: control characters cannot."""
    return re.sub(r"[\x00-\x1f\x7f\ufffe\uffff]", "\ufffd", text)


def matrices(rows: pd.DataFrame) -> Figure:
    """A run's accuracies as heat maps, MTIL beside MCIL; the outlined cells are the tasks just learned."""
    (run,) = run_table(rows).itertuples()
    tasks, size = run.order, len(run.order)
    width = min(WIDTH, 2 * (1.1 + 0.36 * (size + 1)))
    figure, panels = new_panels(2, 2, 0.95 + 0.26 * (size + 1), (0.38 * (size + 1), 0.26 * (size + 1)), width)
    names = [ZERO_SHOT, *(f"{number}. {task}" for number, task in enumerate(tasks, 1))]
    for panel, setting in zip(panels, SETTINGS, strict=True):
        found = accuracies(rows, setting).to_numpy()
        described = f"{run.label}, seed {run.seed}: {SETTING_NAMES[setting]} accuracy in percent, tasks in columns"
        tag(panel, panel="matrix", class_="panel heat", role="group", aria_label=described, data_columns=str(size + 1))
        found = np.hstack([found, found.mean(axis=1, keepdims=True)])
        for step in range(size + 1):
            for column, task in enumerate((*tasks, "mean")):
                value = found[step, column] if step < len(found) else math.nan
                when = f"{task}, after {names[step]}" if step else f"{task}, before any task"
                if math.isnan(value):
                    tip = (
                        f"{when}\n{'not learned yet' if step >= len(found) else 'not measured: no checkpoint was left'}"
                    )
                else:
                    change = f"{value - found[0, column]:+.2f}".replace("-", "−")
                    tip = f"{when}\n{fixed(value, 2)} %" + (f"\n{change} against zero-shot" if step else "")
                _cell(panel, column, step, value, tip, learned=step == column + 1, mean=column == size)
        panel.set_title(SETTING_NAMES[setting] if on_paper() else "")
        panel.set_xlim(-0.5, size + 0.5)
        panel.set_ylim(size + 0.5, -0.5)
        panel.set_xticks(range(size + 1), [*map(plain, tasks), "mean"], rotation=50, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(size + 1), map(plain, names))
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
    return figure


def _cell(panel: Axes, x: int, y: int, value: float, tip: str, *, learned: bool, mean: bool) -> None:
    level = heat_level(0 if math.isnan(value) else value)
    fill, page_fill, page_ink = heat_colour(level), f"var(--h{level})", f"var(--i{level})"
    if mean or math.isnan(value):
        fill, page_fill, page_ink = PAPER, "var(--page)" if mean else "var(--panel)", "var(--text)"
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


def curves(comparison: Comparison, setting: Setting, methods: Methods) -> Figure:
    """Accuracy of each task over the sequence, one panel per task, with its zero-shot line.

    A point is as high in all panels, but each has its own level: domains differ more than methods do.
    """
    size = len(comparison.tasks)
    columns = columns_for(size)
    figure, panels = new_panels(size, columns, 0.5 + 1.45 * -(-size // columns), PANEL, sharex=True)
    found = accuracies(comparison.frame, setting)
    found = found.assign(label=comparison.runs["label"].reindex(found.index.get_level_values("run")).to_numpy())
    start = zero_shot(comparison.frame, setting)
    for task, (panel, name) in enumerate(zip(panels, comparison.tasks, strict=True), 1):
        panel.axhline(start[name], **ZERO_SHOT_STYLE)
        panel.axvline(task, color=QUIET, linewidth=0.6)
        described: list[str] = []
        for label in reversed(comparison.labels):  # the first lies on top
            by_step = found.loc[found["label"] == label, name].groupby("step")
            means = by_step.agg(fmean)
            style: dict[str, Any] = {"color": colour(methods[label]), "clip_on": False}
            if (by_step.size() > 1).any():
                band = panel.fill_between(means.index, by_step.min(), by_step.max(), alpha=0.15, linewidth=0, **style)
                _of(band, methods, label)
            marks = [step for step in (task, means.index[-1]) if task <= step <= means.index[-1]]
            (line,) = panel.plot(
                means.index, means, marker=marker(methods[label]), markevery=marks, markersize=4, **style
            )
            values = [DASH if math.isnan(mean) else fixed(mean, 1) for mean in means]
            _of(line, methods, label, data_values=" ".join(values))
            if task in means.index and not math.isnan(means[task]):
                described.insert(0, f"{label} {values[task]} when learned, {values[-1]} at the end")
        summary = f"{SETTING_NAMES[setting]} accuracy on {name}, task {task} of {size}, in percent. "
        summary += f"Zero-shot {fixed(start[name], 1)}. " + "; ".join(described) + "."
        panel.set_title(plain(f"{task}  {name}"))
        panel.set_xticks(range(size + 1))
        panel.set_xlim(0, size + 0.35)
        panel.margins(y=0.08)
        tag(panel, panel="curves", class_="panel steps", role="img", aria_label=summary, data_name=name,
            data_zero=fixed(start[name], 1), data_size=str(size), data_high=f"{size + 0.35}")  # fmt: skip
        tag(panel.patch, class_="plot")
    equal_spans(panels)
    figure.supxlabel("tasks learned", fontsize=8, color=QUIET)
    figure.supylabel(f"{SETTING_NAMES[setting]} accuracy (%)", fontsize=8, color=QUIET)
    _legend(figure, comparison.labels, methods)
    return figure


def trade_off(comparison: Comparison, methods: Methods) -> Figure | None:
    """Forgetting against accuracy, MTIL beside MCIL; None where no run has both: a single task is never forgotten."""
    by_setting = {
        setting: finished_metrics(comparison.frame, setting).dropna(subset=["forgetting", "accuracy"])
        for setting in SETTINGS
    }
    if any(found.empty for found in by_setting.values()):
        return None
    figure, panels = new_panels(2, 2, 3.3, (4.1, 2.4))
    for panel, (setting, found) in zip(panels, by_setting.items(), strict=True):
        start = fmean(zero_shot(comparison.frame, setting))
        panel.axhline(start, **ZERO_SHOT_STYLE)
        for label in reversed(comparison.labels):
            mine = found[found["label"] == label]
            if mine.empty:
                continue
            xs, ys = list(mine["forgetting"]), list(mine["accuracy"])
            style: dict[str, Any] = {"color": colour(methods[label]), "clip_on": False}
            shape: dict[str, Any] = {"marker": marker(methods[label]), "linestyle": "none"}
            runs = f"mean of {len(xs)} runs" if len(xs) > 1 else "1 run"
            tip = f"{label}\naccuracy {fixed(fmean(ys), 2)}\nforgetting {fixed(fmean(xs), 2)} ({runs})"
            if len(xs) > 1:
                x, y, dx, dy = fmean(xs), fmean(ys), stdev(xs), stdev(ys)
                for bar in (([x - dx, x + dx], [y, y]), ([x, x], [y - dy, y + dy])):
                    _of(panel.plot(*bar, linewidth=0.8, **style)[0], methods, label)
                _of(panel.plot(xs, ys, markersize=2, alpha=0.6, **shape, **style)[0], methods, label)
            (mark,) = panel.plot([fmean(xs)], [fmean(ys)], markersize=6, **shape, **style)
            _of(mark, methods, label)
            # Invisible, and easier to point at.
            (target,) = panel.plot([fmean(xs)], [fmean(ys)], markersize=14, alpha=0, **shape, **style)
            _of(target, methods, label, class_="dot", tip=tip, role="img")
        panel.set_title(SETTING_NAMES[setting] if on_paper() else "")
        panel.set_xlabel("forgetting (points, lower is better)")
        panel.set_ylabel("accuracy (%, higher is better)")
        panel.margins(0.12)
        summary = f"{SETTING_NAMES[setting]}, in percent: accuracy (upwards) against forgetting (to the right). "
        tag(panel, panel="trade-off", class_="panel scatter", role="group",
            aria_label=f"{summary}Zero-shot accuracy {fixed(start, 1)}.")  # fmt: skip
    _legend(figure, comparison.labels, methods)
    return figure


def domains(comparison: Comparison, setting: Setting, methods: Methods) -> Figure:
    """A slope chart per domain: zero-shot, just learned, at the end."""
    size = len(comparison.tasks)
    columns = columns_for(size)
    figure, panels = new_panels(size, columns, 0.45 + 1.45 * -(-size // columns), PANEL, sharex=True)
    runs = comparison.runs
    found = accuracies(comparison.frame, setting)
    for task, (panel, name) in enumerate(zip(panels, comparison.tasks, strict=True), 1):
        for label in reversed(comparison.labels):
            mine = runs.index[(runs["label"] == label) & runs["finished"]]
            if len(mine):
                values = [fmean(found.loc[[(run, step) for run in mine], name]) for step in (0, task, size)]
                panel.plot(range(3), values, color=colour(methods[label]), marker=marker(methods[label]), markersize=4)
        panel.set_title(plain(f"{task}  {name}"))
        panel.set_xticks(range(3), ["zero-shot", "learned", "end"])
        panel.set_xlim(-0.2, 2.2)
    equal_spans(panels)
    figure.supylabel(f"{SETTING_NAMES[setting]} accuracy (%)", fontsize=8, color=QUIET)
    _legend(figure, comparison.labels, methods, zero_shot=False)
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


def histograms(
    comparison: Comparison, found: pd.DataFrame, labels: Sequence[str], methods: Methods, *, prototypes: bool
) -> Figure:
    """Distances to the class texts on every task, methods over each other."""
    size = len(comparison.tasks)
    columns = columns_for(size)
    low, high = _ends(found, prototypes)
    bars = round(found["range"].iloc[0] / BAR)
    first, last = round(low / BAR), round(high / BAR)
    edges = [number * BAR for number in range(first, last + 1)]
    figure, panels = new_panels(
        size, columns, 0.5 + 1.3 * -(-size // columns), (PANEL[0], 1.0), sharex=True, sharey=True
    )
    for task, (panel, name) in enumerate(zip(panels, comparison.tasks, strict=True), 1):
        here = found[found["task"] == name]
        means = {label: fixed(fmean(here[here["label"] == label]["mean"]), 3) for label in (ZERO_SHOT, *labels)}
        shapes = {label: _shares(here[here["label"] == label], bars, prototypes)[first:last] for label in means}
        panel.stairs(shapes[ZERO_SHOT], edges, **ZERO_SHOT_STYLE)
        for label in labels:
            shade = colour(methods[label])
            _of(panel.stairs(shapes[label], edges, color=shade, fill=True, alpha=0.2), methods, label)
            outline = panel.stairs(shapes[label], edges, color=shade, linewidth=1.1)
            _of(outline, methods, label, data_values=means[label])
        panel.set_title(plain(f"{task}  {name}"))
        panel.set_xlim(low, high)
        panel.tick_params(labelleft=False)  # the shape is what counts
        summary = f"Distances between images and class texts on {name}. "
        summary += "; ".join(f"{label}: mean distance {mean}" for label, mean in means.items()) + "."
        tag(panel, panel="histogram", class_="panel shapes-of", role="img", aria_label=summary, data_name=name,
            data_zero=means[ZERO_SHOT])  # fmt: skip
        tag(panel.patch, class_="plot")
    what = "classes" if prototypes else "images"
    figure.supxlabel("distance to the class text (1 − cosine; lower is better)", fontsize=8, color=QUIET)
    figure.supylabel(f"share of {what}", fontsize=8, color=QUIET)
    _legend(figure, labels, methods, filled=True)
    return figure


def boxes(
    comparison: Comparison, found: pd.DataFrame, labels: Sequence[str], methods: Methods, *, prototypes: bool
) -> Figure:
    """The same distances as boxes, tasks stacked: quartiles, median, minimum and maximum."""
    size = len(comparison.tasks)
    row = 0.14 * len(labels) + 0.14
    figure, (panel,) = new_panels(1, 1, 0.8 + row * size, (4.6, row * size), WIDTH * 0.75)
    height = 0.8 / len(labels)
    for task, name in enumerate(comparison.tasks):
        here = found[found["task"] == name]
        for number, label in enumerate(labels):
            five = _five(here[here["label"] == label], prototypes)
            y = task + height * (number - (len(labels) - 1) / 2)
            middle = f"median {fixed(five[2], 3)}\nquartiles {fixed(five[1], 3)} to {fixed(five[3], 3)}"
            _box(panel, five, y, 0.35 * height, methods, label, f"{label} on {name}\n{middle}")
        start = _five(here[here["label"] == ZERO_SHOT], prototypes)[2]
        panel.plot([start, start], [task - 0.45, task + 0.45], **ZERO_SHOT_STYLE)
    panel.set_yticks(range(size), map(plain, comparison.tasks))
    panel.set_ylim(size - 0.5, -0.5)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("distance to the class text (1 − cosine; lower is better)")
    what = "the mean image of each class" if prototypes else "the images of their classes"
    summary = f"Distances between class texts and {what}: quartiles, minimum and maximum."
    tag(panel, panel="boxes", class_="panel boxes", role="group", aria_label=summary)
    _legend(figure, labels, methods, filled=True)
    return figure


def _ends(found: pd.DataFrame, prototypes: bool) -> tuple[float, float]:
    """Multiples of a tenth that enclose everything."""
    values = [value for several in found["classes" if prototypes else "quantiles"] for value in several]
    return math.floor(min(values) / GRID) * GRID, math.ceil(max(values) / GRID) * GRID


def _shares(rows: pd.DataFrame, bars: int, prototypes: bool) -> list[float]:
    """The share of images, or of classes, in each bar; all runs together."""
    totals = [0.0] * bars
    if prototypes:
        values = [value for several in rows["classes"] for value in several]
        for value in values:
            totals[min(int(max(value, 0.0) / rows["range"].iloc[0] * bars), bars - 1)] += 1 / len(values)
        return totals
    whole = rows["count"].sum()
    for row in rows.itertuples():
        for number, count in enumerate(row.histogram, row.first_bin):
            totals[min(number * bars // int(row.bins), bars - 1)] += count / whole
    return totals


def _five(rows: pd.DataFrame, prototypes: bool) -> tuple[float, ...]:
    """Minimum, quartiles and median, maximum; of several runs their means, where only these were recorded."""
    if not prototypes:
        return tuple(fmean(values) for values in zip(*rows["quantiles"], strict=True))
    values = [value for several in rows["classes"] for value in several]
    if len(values) == 1:
        return (values[0],) * 5
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return min(values), lower, median(values), upper, max(values)


def _box(
    panel: Axes, five: Sequence[float], y: float, half: float, methods: Methods, label: str, tip: str
) -> None:  # fmt: skip
    least, lower, middle, upper, most = five
    shade = colour(methods[label])
    (line,) = panel.plot([least, most], [y, y], color=shade, linewidth=1)
    corner, width, height = (lower, y - half), upper - lower, 2 * half
    face = Rectangle(corner, width, height, facecolor=PAPER, edgecolor="none", zorder=2.1)
    tint = Rectangle(corner, width, height, facecolor=(shade, 0.35), edgecolor=shade, linewidth=1, zorder=2.2)
    (bar,) = panel.plot([middle, middle], [y - half, y + half], color=MARK, linewidth=1.4, zorder=2.3)
    for artist in (line, face, bar):
        _of(artist, methods, label)
    _of(tint, methods, label, class_="dot", tip=tip, role="img")
    for patch in (face, tint):
        panel.add_patch(patch)


# -- legends -----------------------------------------------------------------------------------------------------------


def _legend(
    figure: Figure, labels: Sequence[str], methods: Methods, *, zero_shot: bool = True, filled: bool = False
) -> None:
    """Above the panels, in as many columns as fit; the page has a legend of its own."""
    if not on_paper():
        return
    handles: list[Any] = []
    for label in labels:
        shade = colour(methods[label])
        if filled:
            handles.append(Patch(facecolor=(shade, 0.35), edgecolor=shade, label=plain(label)))
        else:
            handles.append(Line2D([], [], color=shade, marker=marker(methods[label]), markersize=5, label=plain(label)))
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
