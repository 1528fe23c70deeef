"""Which figures there are, what their captions say, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tasso.files import write_text
from tasso.progress import progress
from tasso.report.collect import SETTINGS, ReportError, RunResult
from tasso.report.distances import Measured, measured
from tasso.report.figures import draw
from tasso.report.figures.style import drawing, require_matplotlib, save
from tasso.report.groups import Comparison, compare
from tasso.report.markup import slug
from tasso.report.scatter import points_of
from tasso.report.tables import SETTING_MEANINGS, SETTING_NAMES, count_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

CAPTIONS = "captions.md"


@dataclass(frozen=True)
class Figure:
    """A file name without its ending, what is drawn and from how many runs, and how to draw it."""

    name: str
    caption: str
    draw: Callable[[], Canvas | None]


def write_figures(runs: Sequence[RunResult], folder: str | PathLike[str]) -> list[Path]:
    """Draw every figure of these runs as PNG and PDF, and write captions.md beside them; returns all files."""
    require_matplotlib()
    return save_figures(list(figures(runs)), Path(folder))


def save_figures(planned: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw these figures, and write captions.md beside them; returns all files."""
    require_matplotlib()
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


def figures(runs: Sequence[RunResult]) -> Iterator[Figure]:
    """All figures that these runs can give."""
    if not runs:
        raise ReportError("figures need at least one run")
    comparisons = compare(runs)
    methods = {label: number for number, label in enumerate(dict.fromkeys(run.label for run in runs))}
    used: dict[str, int] = {}
    for comparison in comparisons:
        where = slug(f"{comparison.benchmark} {comparison.model} {comparison.sequence}")
        used[where] = used.get(where, 0) + 1
        where = where if used[where] == 1 else f"{where}-{used[where]}"
        yield from of_comparison(comparison, where, methods)
        if found := measured(comparison):
            yield from of_distances(comparison, found, rivals(comparison, found), where, methods)
    for number, run in enumerate(runs):
        yield of_run(run, f"matrix-{number + 1:03d}-{slug(run.label)}-{slug(run.order)}-{run.seed}")


def of_comparison(comparison: Comparison, where: str, methods: Mapping[str, int]) -> Iterator[Figure]:
    """Curves, domains and the trade-off of methods that learned the same tasks in the same order."""
    name, runs = comparison.name, count_of(len(comparison.runs), "run")
    finished = sum(run.finished for run in comparison.runs)
    for setting in SETTINGS:
        about = f"{SETTING_NAMES[setting]} ({SETTING_MEANINGS[setting]}) on {name}"
        yield Figure(
            f"curves-{where}-{setting}",
            f"Accuracy of each task over the sequence, {about}, from {runs}. Dashed: zero-shot accuracy of the "
            "starting model; vertical line and mark: when the task was learned. Lines are means over seeds, bands "
            "reach from the lowest to the highest seed. All panels span as many points, from levels of their own.",
            lambda setting=setting: draw.curves(comparison, setting, methods),  # type: ignore[misc]
        )
        if finished:
            yield Figure(
                f"domains-{where}-{setting}",
                f"Each domain's accuracy at the start, when it had just been learned and after the last task, {about}, "
                f"means over seeds, from {count_of(finished, 'finished run')}. All panels span as many points, "
                "from levels of their own.",
                lambda setting=setting: draw.domains(comparison, setting, methods),  # type: ignore[misc]
            )
    if any(points_of(group, "mtil") for group in comparison.groups):
        yield Figure(
            f"trade-off-{where}",
            f"Accuracy after the last task against forgetting on {name}, one mark a method, from "
            f"{count_of(finished, 'finished run')}. Bars: sample standard deviation over seeds. Dashed: zero-shot "
            "accuracy of the starting model. The upper left is best.",
            lambda: draw.trade_off(comparison, methods),
        )


def of_distances(
    comparison: Comparison, found: Measured, pair: Sequence[str], where: str, methods: Mapping[str, int]
) -> Iterator[Figure]:
    """Histograms and boxes of the distances to the class texts, these two methods over each other."""
    who = " and ".join(f"{label} ({count_of(found.runs[label], 'run')})" for label in pair)
    for prototypes in (False, True):
        kind = "classes" if prototypes else "images"
        what = (
            "class texts and the mean embedding of each class's test images, one distance a class"
            if prototypes
            else "each test image and the text of its own class"
        )
        shared = f"between {what}, after the last task on {comparison.name}: {who}"
        yield Figure(
            f"distances-{kind}-{where}",
            f"Cosine distances {shared}. One panel a data set; dashed: the starting model. Runs with several seeds are "
            "taken together.",
            lambda prototypes=prototypes: draw.histograms(comparison, found, pair, methods, prototypes=prototypes),  # type: ignore[misc]
        )
        pooled = "taken together" if prototypes else "averaged quantile by quantile"
        yield Figure(
            f"boxes-{kind}-{where}",
            f"Cosine distances {shared}. Box: quartiles and median; line: least to greatest; dashed: median of the "
            f"starting model. Runs with several seeds are {pooled}.",
            lambda prototypes=prototypes: draw.boxes(comparison, found, pair, methods, prototypes=prototypes),  # type: ignore[misc]
        )


def rivals(comparison: Comparison, found: Measured) -> list[str]:
    """The two methods to set against each other: TASSO and the most accurate other one, or the two most accurate."""
    groups = [group for group in comparison.groups if group.label in found.methods]

    def accuracy(label: str) -> float:
        group = next(group for group in groups if group.label == label)
        result = group.metric("mtil", "accuracy")
        return -1.0 if result is None else result.mean

    ranked = sorted((group.label for group in groups), key=lambda label: -accuracy(label))
    ours = [label for label in ranked if any(g.label == label and g.runs[0].method == "tasso" for g in groups)][:1]
    return [*ours, *(label for label in ranked if label not in ours)][:2]


def of_run(run: RunResult, name: str) -> Figure:
    """A run's accuracy matrices."""
    state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.tasks), 'task')} learned"
    return Figure(
        name,
        f"Accuracy in percent on every task (columns) at the start and after each learned task (rows): {run.label}, "
        f"seed {run.seed}, on {compare([run])[0].name}, 1 run{state}. Outlined: the task just learned.",
        lambda: draw.matrices(run),
    )
