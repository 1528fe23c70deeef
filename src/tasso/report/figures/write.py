"""Which figures there are, what their captions say, and where they go: one list, for files and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure as Canvas

from tasso.files import write_text
from tasso.progress import progress
from tasso.report.figures import draw
from tasso.report.figures.style import drawing, save
from tasso.report.frame import Comparison, Orders, Setting, by_tasks, compare, finished_metrics, run_table, settings_of
from tasso.report.looks import Look, looks
from tasso.report.reader import ReportError
from tasso.report.tables import SETTING_MEANINGS, SETTING_NAMES, ZERO_SHOT, count_of
from tasso.report.templates import slug

Kind = Literal["trade-off", "curves", "distances", "matrix"]
CAPTIONS = "captions.md"


@dataclass(frozen=True)
class Figure:
    """A figure of the list that files and page share.

    Attributes:
        name: of its file, without the ending.
        caption: what is drawn and from how many runs.
        draw: draws it.
        kind: of which section of the page it is a part.
        where: the runs that it is about.
        setting: the one it is about, if one.
        run: the only run it is about, if one.
        labels: the methods that are drawn; none: all of `where`.
    """

    name: str
    caption: str
    draw: Callable[[], Canvas]
    kind: Kind
    where: Comparison | Orders
    setting: Setting | None = None
    run: str = ""
    labels: tuple[str, ...] = ()


def write_figures(frame: pd.DataFrame, folder: str | PathLike[str]) -> list[Path]:
    """Draw every figure of these runs as PNG, PDF and SVG, and write captions.md beside them; returns all files."""
    return save_figures(list(figures(frame)), Path(folder))


def save_figures(planned: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw these figures, and write captions.md beside them; returns all files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{folder}: cannot make the folder for figures: {error.strerror}") from None
    written, captions = [], ["# Figures", ""]
    with progress("drawing figures", len(planned)) as advance, drawing():
        for figure in planned:
            written += save(figure.draw(), folder, figure.name)
            captions += [f"**{figure.name}**: {figure.caption}", ""]
            advance(1, figure.name)
    write_text(folder / CAPTIONS, "\n".join(captions[:-1]) + "\n")
    return [*written, folder / CAPTIONS]


def figures(
    frame: pd.DataFrame,
    *,
    matrices_of: Collection[str] | None = None,
    distances_of: Collection[str] | None = None,
) -> Iterator[Figure]:
    """All figures that these runs can give.

    Args:
        matrices_of, distances_of: the runs (values of `run`) whose accuracy matrices and distances to class texts are
            drawn, by default all of them.
    """
    if frame.empty:
        raise ReportError("figures need at least one run")
    shown, comparisons, used = looks(frame), compare(frame), Counter[str]()

    def named(where: Comparison | Orders) -> str:
        """Different comparisons may share a name; a number tells them apart."""
        name = slug(f"{where.benchmark} {where.model} {where.sequence if isinstance(where, Comparison) else 'orders'}")
        used[name] += 1
        return name if used[name] == 1 else f"{name}-{used[name]}"

    names = {id(comparison): named(comparison) for comparison in comparisons}
    for orders in by_tasks(comparisons):
        first = orders.comparisons[0]
        yield from trade_offs(orders, names[id(first)] if len(orders.comparisons) == 1 else named(orders), shown)
    for comparison in comparisons:
        yield from task_curves(comparison, names[id(comparison)], shown)
    for comparison in comparisons:
        measured = comparison.only(distances_of)
        yield from of_distances(measured, compared_pair(measured), names[id(comparison)], shown)
    number = 0
    for comparison in comparisons:
        for run, rows in comparison.only(matrices_of).frame.groupby("run", sort=False):
            number += 1
            name = f"matrix-{number:03d}-{slug(rows['label'].iloc[0])}-{slug(comparison.order)}-{rows['seed'].iloc[0]}"
            yield from of_run(comparison, str(run), name)


def trade_offs(orders: Orders, where: str, shown: Mapping[str, Look]) -> Iterator[Figure]:
    """Accuracy against what was lost; none where nothing can be forgotten, because there is a single task."""
    finished = finished_metrics(orders.frame, "mtil")
    if not finished["forgetting"].notna().any():
        return
    several = f", the mean over {len(orders.comparisons)} orders of the tasks" if len(orders.comparisons) > 1 else ""
    for setting in settings_of(orders.frame):
        yield Figure(
            f"trade-off-{where}-{setting}",
            f"{SETTING_NAMES[setting]} accuracy after the last task against forgetting, and against zero-shot "
            f"degradation, on {orders.title}, one mark per method{several}, from "
            f"{count_of(len(finished), 'finished run')}. Bars: sample standard deviation over its runs. Dashed: "
            f"zero-shot accuracy of the pretrained model. The upper left is best.{footnotes(orders.labels, shown)}",
            partial(draw.trade_off, orders, setting, shown),
            "trade-off",
            orders,
            setting,
        )


def task_curves(comparison: Comparison, where: str, shown: Mapping[str, Look]) -> Iterator[Figure]:
    """Accuracies of methods that learned the same tasks in the same order."""
    for setting in settings_of(comparison.frame):
        yield Figure(
            f"curves-{where}-{setting}",
            f"Mean accuracy and accuracy of each task over the sequence, {SETTING_NAMES[setting]} "
            f"({SETTING_MEANINGS[setting]}) on {comparison.title}, from {count_of(len(comparison.runs), 'run')}. "
            "Dashed: zero-shot accuracy of the pretrained model; vertical line: when the task was learned. Marks: then "
            "and at the end; of runs that were not evaluated after every task, all evaluations. "
            "Lines are means over seeds, bands reach from the lowest to the highest seed. Each panel has a scale of "
            "its own."
            f"{footnotes(comparison.labels, shown)}",
            partial(draw.curves, comparison, setting, shown),
            "curves",
            comparison,
            setting,
        )


def of_distances(
    comparison: Comparison, pair: Sequence[str], where: str, shown: Mapping[str, Look]
) -> Iterator[Figure]:
    """Histograms and boxes of the distances to the class texts, these methods over each other; none without them, and
    none of a long sequence."""
    found = draw.measured(comparison)
    if found.empty or len(comparison.tasks) > draw.MOST_TASKS:
        return
    runs = found.groupby("label")["run"].nunique()
    who = " and ".join(f"{label} ({count_of(int(runs[label]), 'run')})" for label in pair)
    shared = f"after the last task on {comparison.title}: {who}. Runs with several seeds are taken together."
    yield Figure(
        f"distances-images-{where}",
        "Cosine distances between each image and the text of its own class, one panel per data set; dashed: the "
        f"pretrained model; {shared}",
        partial(draw.histograms, comparison, found, pair, shown),
        "distances",
        comparison,
        labels=tuple(pair),
    )
    yield Figure(
        f"boxes-classes-{where}",
        "Cosine distances between class texts and the mean embedding of each class's images, one distance per "
        "class. Box: quartiles and median; line: minimum to maximum; dashed: median of the pretrained model; "
        f"{shared}",
        partial(draw.boxes, comparison, found, pair, shown),
        "distances",
        comparison,
        labels=tuple(pair),
    )


def footnotes(labels: Sequence[str], shown: Mapping[str, Look]) -> str:
    """What stands in for a part of a method, for the end of a caption."""
    return "".join(f" {shown[label].sign} {shown[label].note}." for label in labels if shown[label].note)


def compared_pair(comparison: Comparison) -> list[str]:
    """The two methods to set against each other: TASSO and the most accurate other one, or the two most accurate.

    Only methods whose runs have distances count.
    """
    measured = set(draw.measured(comparison)["label"]) - {ZERO_SHOT}
    accuracy = finished_metrics(comparison.frame, "mtil").groupby("label")["accuracy"].agg(fmean)
    ranked = sorted(
        (label for label in comparison.labels if label in measured), key=lambda label: -accuracy.get(label, -1)
    )
    ours = [label for label in ranked if comparison.of(label)["method"].iloc[0] == "tasso"][:1]
    return [*ours, *(label for label in ranked if label not in ours)][:2]


def of_run(comparison: Comparison, run: str, name: str) -> Iterator[Figure]:
    """A run's accuracy matrices; none of a long sequence, whose cells nobody could read."""
    if len(comparison.tasks) > draw.MOST_TASKS:
        return
    rows = comparison.only([run]).frame
    (line,) = run_table(rows).itertuples()
    state = "" if line.finished else f", unfinished: {line.learned} of {count_of(len(line.order), 'task')} learned"
    for setting in settings_of(rows):
        yield Figure(
            f"{name}-{setting}",
            f"{SETTING_NAMES[setting]} accuracy in percent on every task (columns) at the start and after each learned "
            f"task (rows): {line.label}, seed {line.seed}, on {comparison.title}, 1 run{state}. Colour: the change "
            "against zero-shot, blue for a gain and red for a loss. Outlined: the task just learned.",
            partial(draw.matrix, rows, setting),
            "matrix",
            comparison,
            setting,
            run,
        )
