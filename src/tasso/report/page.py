"""The report page: one HTML file that needs no network, no server and no script to be read."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from tasso.files import write_atomically
from tasso.report.colours import colour_rules, mark_outlines
from tasso.report.conclusion import conclude
from tasso.report.figures import draw
from tasso.report.figures.style import drawing
from tasso.report.figures.svg import panels
from tasso.report.formats import to_csv, to_latex
from tasso.report.frame import SETTINGS, Comparison, Setting, compare, labels, run_table, several_orders
from tasso.report.reader import ReportError
from tasso.report.sections import Block, Folded, Part, Section, Shown
from tasso.report.tables import (
    CORE_METRICS,
    METRIC_COLUMNS,
    SETTING_MEANINGS,
    SETTING_NAMES,
    ZERO_SHOT,
    Table,
    cost_table,
    count_of,
    matrix_table,
    order_table,
    summary_table,
)
from tasso.report.templates import render, slug

Gallery = Mapping[str, Sequence[tuple[str, bytes]]]

FEW_RUNS = 12  # details of more runs than these are folded
FEW_ROWS = 30
DOWNLOADS = {"csv": "CSV", "tex": "LaTeX"}
_PNG_START = b"\x89PNG\r\n\x1a\n"


def write_page(frame: pd.DataFrame, out_path: str | PathLike[str], **content: Any) -> Path:
    """Write the report of the runs in `frame` to `out_path` and return that path; `content` as for `build_page`."""
    out_path = Path(out_path)
    text = build_page(frame, **content)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    # A name may hold half a surrogate pair, which UTF-8 cannot: write those as character references.
    write_atomically(out_path, lambda part: part.write_bytes(text.encode("utf-8", "xmlcharrefreplace")))
    return out_path


def build_page(
    frame: pd.DataFrame,
    *,
    title: str,
    intro: str,
    gallery: Gallery | None = None,
    sentence: str | None = None,
    sections: Sequence[Section] = (),
    matrices_of: Collection[str] | None = None,
    distances_of: Collection[str] | None = None,
) -> str:
    """The page's HTML. The same runs always give the same text.

    Args:
        intro: plain text, blank lines part paragraphs.
        gallery: example images: maps a domain to (class name, PNG bytes) pairs.
        sentence: the conclusion at the top; without one it is worked out from the runs.
        sections: come first, in the place of the tables that sum up the runs.
        matrices_of, distances_of: the runs (values of `run`) whose accuracy matrices and distances to class texts are
            shown, by default all of them.
    """
    if frame.empty and not sections:
        raise ReportError("a report page needs at least one run")
    page = _Page(frame, unfold_first=bool(sections))
    every: list[Section | None] = list(sections)
    if not frame.empty:
        with drawing(page=True):
            every += [
                None if sections else page.summary(),
                page.trade_off(),
                page.curves(),
                page.distances(distances_of),
                page.matrices(matrices_of),
                None if sections else page.costs(),
            ]
    every.append(page.gallery(gallery) if gallery else None)
    if sentence is None:
        sentence = "" if frame.empty else conclude(frame)
    return page.render(
        "page.html",
        title=title,
        sentence=sentence,
        paragraphs=[text for text in re.split(r"\n\s*\n", intro.strip()) if text],
        sections=[section for section in every if section],
        source="" if sections else f" from {count_of(len(page.runs), 'run')}",
        style=Markup(_resource("page.css") + colour_rules() + page.style_rules()),
        script=Markup(_resource("page.js")),
        shapes=mark_outlines(),
        files=lambda: page.files,
    )


def _resource(name: str) -> str:
    return (files("tasso.report") / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Choices:
    """Methods, benchmarks and orders of a page, each with its number; `runs` has those of every run."""

    methods: dict[str, int]
    benchmarks: dict[str, int]
    orders: dict[str, int]
    runs: list[tuple[int, int, int]] = field(default_factory=list)

    @staticmethod
    def of(comparisons: Sequence[Comparison], methods: Sequence[str]) -> Choices:
        benchmarks = dict.fromkeys(comparison.benchmark for comparison in comparisons)
        orders = sorted({comparison.order for comparison in comparisons})
        numbered = [{name: number for number, name in enumerate(names)} for names in (methods, benchmarks, orders)]
        found = Choices(numbered[0], numbered[1], numbered[2])
        for comparison in comparisons:
            where = found.benchmarks[comparison.benchmark], found.orders[comparison.order]
            found.runs.extend((found.methods[label], *where) for label in comparison.runs["label"])
        return found

    def method(self, label: str | None) -> str | None:
        """The value of `data-method`; None for what is about no method of the runs."""
        return f"method-{self.methods[label]}" if label in self.methods else None

    def benchmark(self, name: str) -> str | None:
        """The value of `data-benchmark`; None for what belongs to all."""
        return f"benchmark-{self.benchmarks[name]}" if name in self.benchmarks else None

    def order(self, name: str) -> str | None:
        """The value of `data-order`; None for what belongs to all."""
        return f"order-{self.orders[name]}" if name in self.orders else None


class _Page:
    """The sections about runs, and what they share."""

    def __init__(self, frame: pd.DataFrame, *, unfold_first: bool) -> None:
        self.frame = frame
        self.runs = run_table(frame)
        self.unfold_first = unfold_first
        self.comparisons = compare(frame)
        self.choices = Choices.of(self.comparisons, labels(frame))
        self.methods = self.choices.methods
        self.files: dict[str, dict[str, str]] = {}
        self.styles: dict[str, str] = {}  # of figures: a CSS class for each

    def render(self, template: str, **values: Any) -> Markup:
        return render(template, choices=self.choices, save=self._save, **values)

    def style_rules(self) -> str:
        return "\n".join(f".{name}{{{style}}}" for style, name in self.styles.items())

    def _save(self, table: Table, name: str) -> dict[str, str]:
        """Keep a table under this name for the script, which makes files of it; returns the formats."""
        if name in self.files:
            raise ValueError(f"two tables named {name!r} on one page")
        self.files[name] = {"csv": to_csv(table), "tex": to_latex(table)}
        return DOWNLOADS

    def _drawing(self, kind: str, **values: Any) -> Markup:
        return self.render("drawings.html", kind=kind, **values)

    # -- tables ------------------------------------------------------------------------------------------------

    def summary(self) -> Section:
        parts: list[Part] = []
        several = several_orders(self.comparisons)
        for number, orders in enumerate(several, 1):
            for setting in SETTINGS:
                tables = [
                    Shown(f"orders-{number}-{setting}-{metric.key}", order_table(orders, setting, metric.key))
                    for metric in CORE_METRICS
                ]
                parts.append(Block(tables, setting=setting, benchmark=orders.benchmark))
        for setting in SETTINGS:
            table = summary_table(self.frame, setting)
            shown: Part = Shown(f"summary-{setting}", table, setting)
            if several and len(table.rows) > FEW_ROWS:  # the tables above sum it up
                legend = f"{SETTING_NAMES[setting]}: every order by itself ({count_of(len(table.rows), 'row')})"
                shown = Block([Folded(legend, [shown])], setting=setting)
            parts.append(shown)
        parts.append(Folded("What the columns mean", [self._drawing("meanings", metrics=METRIC_COLUMNS)]))
        return Section("summary", "Summary", parts)

    def costs(self) -> Section:
        table = cost_table(self.frame)
        parts: list[Part] = ["The runs have not recorded any task yet."]
        if table.rows:
            parts = [Folded(f"Show the table ({count_of(len(table.rows), 'row')})", [Shown("time-and-memory", table)])]
        return Section("costs", "Time and memory", parts)

    # -- figures -----------------------------------------------------------------------------------------------

    def trade_off(self) -> Section | None:
        drawn = [draw.trade_off(comparison, self.methods) for comparison in self.comparisons]
        if not any(drawn):
            return None
        by_setting = [
            dict(zip(SETTINGS, panels(figure, self.styles), strict=True)) if figure else {} for figure in drawn
        ]

        def panel(number: int, setting: Setting) -> Markup | None:
            svg = by_setting[number].get(setting)
            return svg and self._drawing("panels", panels=[svg], columns=1)

        legend = "Upwards is more accurate, to the left is less forgotten, so the upper left is best; in percent. "
        legend += "Each mark is a method, the small ones its runs. The dashed line is the zero-shot accuracy."
        return self._section("trade-off", "Accuracy and forgetting", legend, self._blocks(panel, "pair"))

    def curves(self) -> Section:
        legend = "Accuracy in percent on each task after 0, 1, 2 … tasks were learned. "
        legend += "The vertical line and the mark show when the task itself was learned."
        if self.runs.duplicated(["benchmark", "split", "model", "sequence", "order", "label"]).any():
            legend += " Lines are means over seeds, bands reach from the lowest to the highest seed."

        def drawn(number: int, setting: Setting) -> Markup:
            comparison = self.comparisons[number]
            found = panels(draw.curves(comparison, setting, self.methods), self.styles)
            return self._drawing("panels", panels=found, columns=draw.columns_for(len(found)))

        return self._section("curves", "Task by task", legend, self._blocks(drawn))

    def distances(self, runs: Collection[str] | None) -> Section | None:
        parts: list[Part] = []
        for whole, name in zip(self.comparisons, self._names(), strict=True):
            comparison = _only(whole, runs)
            found = draw.measured(comparison)
            measured = [label for label in comparison.labels if label in set(found["label"]) - {ZERO_SHOT}]
            if measured:
                histograms = panels(
                    draw.histograms(comparison, found, measured, self.methods, prototypes=False), self.styles
                )
                (boxes,) = panels(draw.boxes(comparison, found, measured, self.methods, prototypes=True), self.styles)
                content = [
                    self._drawing("panels", panels=histograms, columns=draw.columns_for(len(histograms))),
                    "Class texts against the mean image of each class (box: quartiles and median, line: all classes)",
                    self._drawing("panels", panels=[boxes], columns=1),
                ]
                parts.append(self._of(comparison, name, content))
        if not parts:
            return None
        legend = (
            "The distance 1 − cosine between images and the texts of their own classes after the last task; to "
            "the left is closer. Dashed: the pretrained model. Runs with several seeds are taken together."
        )
        return self._section("distances", "Images and texts", legend, parts)

    def matrices(self, runs: Collection[str] | None) -> Section:
        wanted = set(self.runs.index if runs is None else runs)
        by_run = {
            run: dict(zip(SETTINGS, panels(draw.matrices(rows), self.styles), strict=True))
            for run, rows in self.frame.groupby("run", sort=False)
            if run in wanted
        }

        def maps(number: int, setting: Setting) -> Part | None:
            comparison = _only(self.comparisons[number], runs)
            drawn = [self._maps(comparison.of(label), setting, number, by_run) for label in comparison.labels]
            return Block(drawn, kind="maps") if drawn else None

        return Section("matrices", "Accuracy matrices", [self._drawing("heat-legend"), *self._blocks(maps)])

    def _maps(self, rows: pd.DataFrame, setting: Setting, number: int, by_run: Mapping[str, Any]) -> Block:
        """The first seed's matrix open, the others folded away: seven seeds would bury the next method."""
        found: list[Part] = []
        for repeat, run in enumerate(run_table(rows).itertuples(), 1):
            state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.order), 'task')}"
            detail = f"{SETTING_NAMES[setting]}, seed {run.seed}{state}"
            name = f"matrix-{slug(run.label)}-{number + 1}-{setting}-{repeat}"
            # Two labels may have one slug; the method's number tells them apart.
            name = name if name not in self.files else f"{name}-{self.methods[run.label]}"
            table = matrix_table(rows[rows["run"] == run.Index], setting)
            panel = by_run[run.Index][setting]
            found.append(self._drawing("matrix", run=run, detail=detail, panel=panel, table=table, name=name))
        label = rows["label"].iloc[0]
        rest = [Folded(f"{count_of(len(found) - 1, 'more run')} of {label}", found[1:])] if len(found) > 1 else []
        return Block([found[0], *rest], method=label, kind="map")

    def gallery(self, gallery: Gallery) -> Section:
        """One block per domain, one image per class, embedded so that the page stays one file."""
        images = {domain: [_image(domain, *image) for image in several] for domain, several in gallery.items()}
        content = self._drawing("gallery", gallery=images)
        return Section("images", "What the images look like", [content], short="Images")

    # -- what sections share -----------------------------------------------------------------------------------

    def _section(self, name: str, title: str, legend: str, parts: Sequence[Part]) -> Section:
        return Section(name, title, [legend, self._drawing("keys"), *parts])

    def _blocks(self, content: Callable[[int, Setting], Part | None], kind: str = "plain") -> list[Part]:
        """The content of every comparison in both settings; folded where there is a lot of it."""
        blocks: list[Part] = []
        for number, (comparison, name) in enumerate(zip(self.comparisons, self._names(), strict=True)):
            found = ((setting, content(number, setting)) for setting in SETTINGS)
            parts = [
                Block([part], heading=SETTING_NAMES[setting], remark=SETTING_MEANINGS[setting], setting=setting)
                for setting, part in found
                if part
            ]
            if parts:
                blocks.append(self._of(comparison, name, [Block(parts, kind=kind)]))
        return blocks

    def _of(self, comparison: Comparison, name: str, parts: Sequence[Part]) -> Part:
        """What belongs to one comparison: under its name where there are several, folded where runs are many."""
        where: dict[str, Any] = {"benchmark": comparison.benchmark, "order": comparison.order}
        if len(self.comparisons) == 1:
            return Block(parts, kind="plain", **where)
        first = comparison.order == self.comparisons[0].order and self.unfold_first
        few = len(self.runs) <= FEW_RUNS
        remark = count_of(len(comparison.runs), "run")
        return Folded(name, parts, remark, large=True, open=few or first, **where)

    def _names(self) -> list[str]:
        """A name for each comparison; the tasks are spelled out where the rest does not tell two apart."""
        counts = Counter(comparison.name for comparison in self.comparisons)
        return [
            one.name if counts[one.name] == 1 else f"{one.name}: {', '.join(one.tasks)}" for one in self.comparisons
        ]


def _only(comparison: Comparison, runs: Collection[str] | None) -> Comparison:
    """A comparison without the runs that are not among these."""
    if runs is None:
        return comparison
    rows = comparison.frame[comparison.frame["run"].isin(list(runs))]
    return Comparison(comparison.benchmark, comparison.model, comparison.sequence, comparison.tasks, rows)


def _image(domain: str, name: str, png: bytes) -> dict[str, Any]:
    if not png.startswith(_PNG_START) or len(png) < 24:
        raise ReportError(f"gallery: {domain}: {name}: not a PNG image")
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    return {"name": name, "data": b64encode(png).decode("ascii"), "width": width, "height": height}
