"""The report page: one HTML file that needs no network, no server and no script to be read."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from tasso.files import write_atomically
from tasso.report.colours import HEAT_END, colour_rules, heat_level, mark_outlines
from tasso.report.conclusion import conclude
from tasso.report.figures import Figure, draw, figures
from tasso.report.figures.style import drawing
from tasso.report.figures.svg import panels
from tasso.report.figures.write import Kind
from tasso.report.formats import to_csv, to_latex
from tasso.report.frame import Comparison, by_setting, by_tasks, compare, run_table, settings_of, several_orders
from tasso.report.looks import Look, looks
from tasso.report.peers import WHOSE, peer_tables
from tasso.report.reader import ReportError
from tasso.report.sections import Block, Folded, Part, Section, Shown
from tasso.report.tables import (
    CORE_METRICS,
    SETTING_MEANINGS,
    SETTING_NAMES,
    Table,
    combined_table,
    cost_table,
    count_of,
    matrix_table,
    metric_columns,
    order_table,
    summary_table,
)
from tasso.report.templates import render

Gallery = Mapping[str, Sequence[tuple[str, bytes]]]

Drawn = tuple[Figure, list[Markup]]  # a figure and its panels as SVG

FEW_RUNS = 12  # details of more runs than these are folded
# Of the legend of heat maps: points, and the level of their colour.
HEAT_STEPS = {points: heat_level(points) for points in (-HEAT_END, -20, -10, -5, 0, 5, 10, 20, HEAT_END)}
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
        sections: what the results mean, after the curves, in the place of the tables of every metric.
        matrices_of, distances_of: the runs (values of `run`) whose accuracy matrices and distances to class texts are
            shown, by default all of them.
    """
    if frame.empty and not sections:
        raise ReportError("a report page needs at least one run")
    page = _Page(frame)
    every: list[Section | None] = list(sections)
    if not frame.empty:
        with drawing(page=True):
            page.draw(figures(frame, matrices_of=matrices_of, distances_of=distances_of))
        every = [
            page.summary(details=not sections),
            page.published(),
            page.trade_off(),
            page.curves(),
            *sections,
            page.distances(),
            page.matrices(),
            None if sections else page.costs(),
        ]
    every.append(page.gallery(gallery) if gallery else None)
    if sentence is None:
        sentence = "" if frame.empty else conclude(frame)
    return page.render(
        "page.html",
        title=title,
        sentence=sentence,
        where=[orders.title for orders in by_tasks(page.comparisons)],
        paragraphs=[text for text in re.split(r"\n\s*\n", intro.strip()) if text],
        sections=[section for section in every if section],
        source="" if sections else f" from {count_of(len(page.runs), 'run')}",
        style=Markup(_resource("page.css") + colour_rules(page.looks.values()) + page.style_rules()),
        script=Markup(_resource("page.js")),
        shapes=mark_outlines(),
        marks=list(mark_outlines()),
        files=lambda: page.files,
    )


def _resource(name: str) -> str:
    return (files("tasso.report") / name).read_text(encoding="utf-8")


class Choices:
    """Methods, benchmarks and orders of a page, each with its look or number; `runs` has the numbers of every run."""

    def __init__(self, comparisons: Sequence[Comparison], methods: dict[str, Look]) -> None:
        benchmarks = dict.fromkeys(comparison.benchmark for comparison in comparisons)
        orders = sorted({comparison.order for comparison in comparisons})
        self.methods = methods
        self.benchmarks = {name: number for number, name in enumerate(benchmarks)}
        self.orders = {name: number for number, name in enumerate(orders)}
        self.runs = [
            (methods[label].number, self.benchmarks[comparison.benchmark], self.orders[comparison.order])
            for comparison in comparisons
            for label in comparison.runs["label"]
        ]

    def method(self, label: str | None) -> str | None:
        """The value of `data-method`; None for what is about no method of the runs."""
        return f"method-{self.methods[label].number}" if label in self.methods else None

    def benchmark(self, name: str) -> str | None:
        """The value of `data-benchmark`; None for what belongs to all."""
        return f"benchmark-{self.benchmarks[name]}" if name in self.benchmarks else None

    def order(self, name: str) -> str | None:
        """The value of `data-order`; None for what belongs to all."""
        return f"order-{self.orders[name]}" if name in self.orders else None


class _Page:
    """The sections about runs, and what they share."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.runs = run_table(frame)
        self.comparisons = compare(frame)
        self.looks = looks(frame)
        self.choices = Choices(self.comparisons, self.looks)
        self.by_setting = by_setting(frame)
        self.settings = {setting: SETTING_NAMES[setting] for setting in self.by_setting}
        self.files: dict[str, dict[str, str]] = {}
        self.styles: dict[str, str] = {}  # of figures: a CSS class for each
        self.drawn: dict[Kind, list[Drawn]] = {}

    def render(self, template: str, **values: Any) -> Markup:
        return render(template, choices=self.choices, settings=self.settings, save=self._save, **values)

    def style_rules(self) -> str:
        return "\n".join(f".{name}{{{style}}}" for style, name in self.styles.items())

    def _save(self, table: Table, name: str) -> dict[str, str]:
        """Keep a table under this name for the script, which makes files of it; returns the formats."""
        if name in self.files:
            raise ValueError(f"two tables named {name!r} on one page")
        self.files[name] = {"csv": to_csv(table), "tex": to_latex(table)}
        return DOWNLOADS

    def _drawing(self, kind: str, **values: Any) -> Markup:
        return self.render("drawings.html", kind=kind, marks=list(mark_outlines()), **values)

    # -- tables ------------------------------------------------------------------------------------------------

    def summary(self, *, details: bool) -> Section:
        """The means; with the tables of every metric and order folded below."""
        groups = by_tasks(self.comparisons)
        parts: list[Part] = [
            Shown(f"mean-{number}", combined_table(orders.frame)) for number, orders in enumerate(groups, 1)
        ]
        if details:
            parts += self._details()
        metrics = metric_columns([*self.settings][-1])
        parts.append(Folded("What the columns mean", [self._drawing("meanings", metrics=metrics)]))
        return Section("summary", "Results", parts)

    def _details(self) -> list[Part]:
        found: list[Part] = []
        for number, orders in enumerate(several_orders(self.comparisons), 1):
            blocks = [
                Block(
                    [
                        Shown(f"orders-{number}-{setting}-{metric.key}", order_table(orders, setting, metric.key))
                        for metric in CORE_METRICS
                    ],
                    setting=setting,
                    benchmark=orders.benchmark,
                )
                for setting in settings_of(orders.frame)
            ]
            found.append(Folded(f"Order by order: {orders.name}", blocks))
        tables = [
            Shown(f"summary-{setting}", summary_table(rows, setting), setting)
            for setting, rows in self.by_setting.items()
        ]
        rows = count_of(len(tables[0].table.rows), "row")
        return [*found, Folded(f"Every metric ({rows} per setting)", tables)]

    def published(self) -> Section | None:
        """What others published on these benchmarks, apart from our own."""
        tables = [Shown(name, table) for name, table in peer_tables(self.frame).items()]
        return Section("published", f"Published by others ({WHOSE})", tables, "Published") if tables else None

    def costs(self) -> Section:
        table = cost_table(self.frame)
        parts: list[Part] = ["The runs have not recorded any task yet."]
        if table.rows:
            parts = [Folded(f"Show the table ({count_of(len(table.rows), 'row')})", [Shown("time-and-memory", table)])]
        return Section("costs", "Time and memory", parts)

    # -- figures -----------------------------------------------------------------------------------------------

    def draw(self, planned: Iterable[Figure]) -> None:
        """Draw these figures as SVG, each panel by itself."""
        for figure in planned:
            self.drawn.setdefault(figure.kind, []).append((figure, panels(figure.draw(), self.styles)))

    def trade_off(self) -> Section | None:
        legend = (
            "Upwards is more accurate, to the left less is lost: the upper left is best. First panel: what learned "
            "tasks lost later. Second panel: what tasks lost before they were learned. "
            "A mark is a method's mean, bars are the standard deviation over its runs."
        )
        return self._section("trade-off", "Accuracy against what is lost", legend, self._panels, short="Trade-off")

    def curves(self) -> Section | None:
        legend = (
            "Accuracy in percent after 0, 1, 2 … tasks were learned: the mean over all tasks, then each task. Each "
            "panel has a scale of its own. The vertical line and the mark show when the task itself was learned."
        )
        if self.runs.duplicated(["benchmark", "split", "model", "sequence", "order", "label"]).any():
            legend += " Lines are means over seeds, bands reach from the lowest to the highest seed."
        return self._section("curves", "Task by task", legend, self._panels)

    def distances(self) -> Section | None:
        legend = (
            "The distance 1 − cosine after the last task; to the left is closer. First between images and the "
            "texts of their own classes, then between class texts and the mean image of each class (box: quartiles and "
            "median, line: all classes). Dashed: the pretrained model. Runs with several seeds are taken together."
        )
        if any(len(figure.labels) < len(figure.where.labels) for figure, _ in self.drawn.get("distances", ())):
            legend += (
                " Drawn are two of the methods that kept distances: TASSO and the most accurate other one, or else the "
                "two most accurate."
            )
        return self._section("distances", "Images and texts", legend, self._panels)

    def matrices(self) -> Section | None:
        return self._section("matrix", "Accuracy matrices", self._drawing("heat-legend", steps=HEAT_STEPS), self._maps)

    def _panels(self, drawn: Sequence[Drawn]) -> Part:
        return Block(
            [self._drawing("panels", panels=svgs, columns=draw.columns_for(len(svgs))) for _, svgs in drawn],
            kind="plain",
        )

    def _maps(self, drawn: Sequence[Drawn]) -> Part:
        """Of each method the first seed's matrix open, the others folded away: seven seeds would bury the next one."""
        by_label: dict[str, list[Part]] = {label: [] for label in self.looks}
        for figure, (svg,) in drawn:
            rows = figure.where.frame[figure.where.frame["run"] == figure.run]
            (run,) = run_table(rows).itertuples()
            state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.order), 'task')}"
            shown = {"panel": svg, "table": matrix_table(rows, figure.setting or "mtil"), "name": figure.name}
            detail = f"seed {run.seed}{state}"
            by_label[run.label].append(self._drawing("matrix", label=run.label, detail=detail, **shown))
        maps: list[Part] = []
        for label, found in by_label.items():
            if found:
                more = f"{count_of(len(found) - 1, 'more run')} of {self.looks[label].name}"
                rest = [Folded(more, found[1:])] if len(found) > 1 else []
                maps.append(Block([found[0], *rest], method=label, kind="map"))
        return Block(maps, kind="maps")

    def gallery(self, gallery: Gallery) -> Section:
        """One block per domain, one image per class, embedded so that the page stays one file."""
        images = {domain: [_image(domain, *image) for image in several] for domain, several in gallery.items()}
        content = self._drawing("gallery", gallery=images)
        return Section("images", "What the images look like", [content], short="Images")

    # -- what sections share -----------------------------------------------------------------------------------

    def _section(
        self, kind: Kind, title: str, legend: Part, content: Callable[[Sequence[Drawn]], Part], short: str = ""
    ) -> Section | None:
        """The figures of one kind, comparison by comparison and setting by setting; None without any.

        Comparisons have their names where there are several; all but the first are folded where runs are many.
        """
        drawn = self.drawn.get(kind)
        if not drawn:
            return None
        groups = [list(group) for _, group in groupby(drawn, key=lambda one: id(one[0].where))]
        names = Counter(group[0][0].where.name for group in groups)
        listed = {label for figure, _ in drawn for label in figure.labels or figure.where.labels}
        parts: list[Part] = [legend] if kind == "matrix" else [legend, self._drawing("keys", listed=listed)]
        for number, group in enumerate(groups):
            where = group[0][0].where
            inner: list[Part] = []
            for setting in (*SETTING_NAMES, None):
                if mine := [one for one in group if one[0].setting == setting]:
                    heading = (SETTING_NAMES[setting], SETTING_MEANINGS[setting]) if setting else ("", "")
                    inner.append(Block([content(mine)], *heading, setting=setting))
            about: dict[str, Any] = {"benchmark": where.benchmark, "order": where.order}
            if len(groups) == 1:
                parts.append(Block(inner, kind="plain", **about))
                continue
            tasks = f": {', '.join(run_table(where.frame)['order'].iloc[0])}"
            name = where.name + (tasks if names[where.name] > 1 else "")
            remark, opened = count_of(len(run_table(where.frame)), "run"), not number or len(self.runs) <= FEW_RUNS
            parts.append(Folded(name, inner, remark, large=True, open=opened, **about))
        return Section(kind, title, parts, short)


def _image(domain: str, name: str, png: bytes) -> dict[str, Any]:
    if not png.startswith(_PNG_START) or len(png) < 24:
        raise ReportError(f"gallery: {domain}: {name}: not a PNG image")
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    return {"name": name, "data": b64encode(png).decode("ascii"), "width": width, "height": height}
