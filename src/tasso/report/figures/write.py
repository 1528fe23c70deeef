"""Which figures there are, what their captions say, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure as Canvas

from tasso.files import write_text
from tasso.progress import progress
from tasso.report.figures import draw
from tasso.report.figures.style import drawing, save
from tasso.report.frame import SETTINGS, Comparison, compare, finished_metrics, labels, run_table
from tasso.report.reader import ReportError
from tasso.report.tables import SETTING_MEANINGS, SETTING_NAMES, ZERO_SHOT, count_of
from tasso.report.templates import slug

CAPTIONS = "captions.md"


@dataclass(frozen=True)
class Figure:
    """A file name without its ending, what is drawn and from how many runs, and how to draw it."""

    name: str
    caption: str
    draw: Callable[[], Canvas | None]


def write_figures(frame: pd.DataFrame, folder: str | PathLike[str]) -> list[Path]:
    """Draw every figure of these runs as PNG and PDF, and write captions.md beside them; returns all files."""
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
            canvas = figure.draw()
            if canvas is not None:
                written += save(canvas, folder, figure.name)
                captions += [f"**{figure.name}**: {figure.caption}", ""]
            advance(1, figure.name)
    write_text(folder / CAPTIONS, "\n".join(captions[:-1]) + "\n")
    return [*written, folder / CAPTIONS]


def figures(frame: pd.DataFrame) -> Iterator[Figure]:
    """All figures that these runs can give."""
    if frame.empty:
        raise ReportError("figures need at least one run")
    methods = {label: number for number, label in enumerate(labels(frame))}
    used: dict[str, int] = {}
    for comparison in compare(frame):
        where = slug(f"{comparison.benchmark} {comparison.model} {comparison.sequence}")
        used[where] = used.get(where, 0) + 1
        where = where if used[where] == 1 else f"{where}-{used[where]}"
        yield from of_comparison(comparison, where, methods)
        yield from of_distances(comparison, compared_pair(comparison), where, methods)
    for number, (_, rows) in enumerate(frame.groupby("run", sort=False), 1):
        order, seed = compare(rows)[0].order, rows["seed"].iloc[0]
        yield of_run(rows, f"matrix-{number:03d}-{slug(rows['label'].iloc[0])}-{slug(order)}-{seed}")


def of_comparison(comparison: Comparison, where: str, methods: Mapping[str, int]) -> Iterator[Figure]:
    """Curves, domains and the trade-off of methods that learned the same tasks in the same order."""
    name, runs = comparison.name, count_of(len(comparison.runs), "run")
    finished = int(comparison.runs["finished"].sum())
    for setting in SETTINGS:
        what = f"{SETTING_NAMES[setting]} ({SETTING_MEANINGS[setting]}) on {name}"
        yield Figure(
            f"curves-{where}-{setting}",
            f"Accuracy of each task over the sequence, {what}, from {runs}. Dashed: zero-shot accuracy of the "
            "pretrained model; vertical line and mark: when the task was learned. Lines are means over seeds, bands "
            "reach from the lowest to the highest seed. All panels span as many points, from levels of their own.",
            lambda setting=setting: draw.curves(comparison, setting, methods),  # type: ignore[misc]
        )
        if finished:
            yield Figure(
                f"domains-{where}-{setting}",
                f"Each domain's accuracy at the start, when it had just been learned and after the last task, {what}, "
                f"means over seeds, from {count_of(finished, 'finished run')}. All panels span as many points, "
                "from levels of their own.",
                lambda setting=setting: draw.domains(comparison, setting, methods),  # type: ignore[misc]
            )
    if finished_metrics(comparison.frame, "mtil")["forgetting"].notna().any():
        yield Figure(
            f"trade-off-{where}",
            f"Accuracy after the last task against forgetting on {name}, one mark per method, small ones for its runs, "
            f"from {count_of(finished, 'finished run')}. Bars: sample standard deviation over seeds. Dashed: zero-shot "
            "accuracy of the pretrained model. The upper left is best.",
            lambda: draw.trade_off(comparison, methods),
        )


def of_distances(
    comparison: Comparison, pair: Sequence[str], where: str, methods: Mapping[str, int]
) -> Iterator[Figure]:
    """Histograms and boxes of the distances to the class texts, these methods over each other; none without them."""
    found = draw.measured(comparison)
    if found.empty:
        return
    runs = found.groupby("label")["run"].nunique()
    who = " and ".join(f"{label} ({count_of(int(runs[label]), 'run')})" for label in pair)
    for prototypes in (False, True):
        kind = "classes" if prototypes else "images"
        what = (
            "class texts and the mean embedding of each class's images, one distance per class"
            if prototypes
            else "each image and the text of its own class"
        )
        shared = f"between {what}, after the last task on {comparison.name}: {who}"
        yield Figure(
            f"distances-{kind}-{where}",
            f"Cosine distances {shared}. One panel per data set; dashed: the pretrained model. Runs with several seeds "
            "are taken together.",
            lambda prototypes=prototypes: draw.histograms(comparison, found, pair, methods, prototypes=prototypes),  # type: ignore[misc]
        )
        pooled = "taken together" if prototypes else "averaged quantile by quantile"
        yield Figure(
            f"boxes-{kind}-{where}",
            f"Cosine distances {shared}. Box: quartiles and median; line: minimum to maximum; dashed: median of the "
            f"pretrained model. Runs with several seeds are {pooled}.",
            lambda prototypes=prototypes: draw.boxes(comparison, found, pair, methods, prototypes=prototypes),  # type: ignore[misc]
        )


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


def of_run(rows: pd.DataFrame, name: str) -> Figure:
    """A run's accuracy matrices."""
    (run,) = run_table(rows).itertuples()
    state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.order), 'task')} learned"
    return Figure(
        name,
        f"Accuracy in percent on every task (columns) at the start and after each learned task (rows): {run.label}, "
        f"seed {run.seed}, on {compare(rows)[0].name}, 1 run{state}. Outlined: the task just learned.",
        lambda: draw.matrices(rows),
    )
