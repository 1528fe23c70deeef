"""The report page: one HTML file that needs no network, no server and no script to be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tasso.files import write_atomically
from tasso.report.chapters import Chapter, Folded, Part, Shown
from tasso.report.collect import SETTINGS, ReportError, RunResult, Setting
from tasso.report.colours import colour_rules, legend_mark, mark_shapes
from tasso.report.conclusion import conclude
from tasso.report.curves import curves
from tasso.report.distances import box_plot, distance_panels, measured
from tasso.report.downloads import Downloads
from tasso.report.filters import Choices, filter_bar
from tasso.report.gallery import Gallery, gallery_section
from tasso.report.groups import Comparison, Group, compare, several_orders
from tasso.report.heatmap import heat_legend, heatmap, upright_names
from tasso.report.markup import Html, element, join, raw, slug
from tasso.report.scatter import scatter
from tasso.report.tables import (
    CORE_METRICS,
    METRIC_COLUMNS,
    SETTING_MEANINGS,
    SETTING_NAMES,
    SIGNIFICANT,
    Cell,
    Column,
    Row,
    Table,
    cost_table,
    count_of,
    matrix_table,
    order_table,
    summary_table,
)

# The page must never reach out: the browser itself is told to refuse everything that is not in the file.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_FEW_RUNS = 12  # details of more runs than these are folded
_FEW_ROWS = 30


def write_page(
    runs: Sequence[RunResult],
    out_path: str | PathLike[str],
    *,
    title: str,
    intro: str,
    gallery: Gallery | None = None,
    sentence: str | None = None,
    chapters: Sequence[Chapter] = (),
    matrices_of: Sequence[RunResult] | None = None,
    distances_of: Sequence[RunResult] | None = None,
) -> Path:
    """Write the report of `runs` to `out_path` and return that path.

    `intro` is plain text, blank lines part paragraphs. `sentence` is the conclusion at the top; without
    one it is worked out from the runs. `gallery` maps a domain to (class name, PNG bytes) pairs. `chapters` come first,
    in the place of the tables that sum up the runs. `matrices_of` and `distances_of` are the runs whose accuracy
    matrices and distances to class texts are shown, by default all of them.
    """
    out_path = Path(out_path)
    content = build_page(
        runs, title=title, intro=intro, gallery=gallery, sentence=sentence, chapters=chapters, matrices_of=matrices_of,
        distances_of=distances_of,
    )  # fmt: skip
    out_path.parent.mkdir(parents=True, exist_ok=True)
    # A name may hold half a surrogate pair, which UTF-8 cannot: write those as character references.
    write_atomically(out_path, lambda part: part.write_bytes(content.encode("utf-8", "xmlcharrefreplace")))
    return out_path


def build_page(
    runs: Sequence[RunResult],
    *,
    title: str,
    intro: str,
    gallery: Gallery | None = None,
    sentence: str | None = None,
    chapters: Sequence[Chapter] = (),
    matrices_of: Sequence[RunResult] | None = None,
    distances_of: Sequence[RunResult] | None = None,
) -> str:
    """The page's HTML. The same runs always give the same text."""
    if not runs and not chapters:
        raise ReportError("a report page needs at least one run")
    page = _Page(runs, unfold_first=bool(chapters))
    sections: list[tuple[str, str, Html | None]] = [
        (chapter.name, chapter.short or chapter.title, page.chapter(chapter)) for chapter in chapters
    ]
    if runs:
        sections += [
            ("summary", "Summary", None if chapters else page.summary()),
            ("trade-off", "Accuracy and forgetting", page.trade_off()),
            ("curves", "Task by task", page.curves()),
            ("distances", "Images and texts", page.distances(runs if distances_of is None else distances_of)),
            ("matrices", "Accuracy matrices", page.matrices(runs if matrices_of is None else matrices_of)),
            ("costs", "Time and memory", None if chapters else page.costs()),
        ]
    sections.append(("images", "Images", gallery_section(gallery) if gallery else None))
    there = [(target, name, section) for target, name, section in sections if section]
    paragraphs = [element("p", text) for text in re.split(r"\n\s*\n", intro.strip()) if text]
    contents = [element("li", element("a", name, href=f"#{target}")) for target, name, _ in there]
    header = element(
        "header",
        element("h1", title),
        element("p", (conclude(runs) if runs else "") if sentence is None else sentence, class_="conclusion"),
        *paragraphs,
    )
    nothing = element("p", "No run fits these filters.", id="nothing", class_="conclusion", hidden=True)
    source = "" if chapters else f" from {count_of(len(runs), 'run')}"
    made = f"Made by tasso{source}. This file needs no network."
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        mark_shapes(),
        header,
        element("nav", element("ul", *contents), aria_label="Contents"),
        filter_bar(page.choices) if runs else "",
        element("main", nothing, *(section for _, _, section in there), id="results", tabindex="-1"),
        element("footer", element("p", made, class_="note")),
        element("div", id="tip", role="tooltip", hidden=True),
        element("p", class_="sr", id="tip-said", role="status", aria_live="polite"),
        page.downloads.content(),
        page.choices.content(),
        raw("script", _resource("page.js")) if runs else "",
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        raw("style", _resource("page.css") + colour_rules()),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _resource(name: str) -> str:
    return (files("tasso.report") / name).read_text(encoding="utf-8")


def _section(name: str, title: str, *content: str) -> Html:
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def _scroll(content: Html, name: str) -> Html:
    """A box that scrolls sideways on a narrow screen; reachable by keyboard, hence the tab stop."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


class _Page:
    """The sections, and what they share."""

    def __init__(self, runs: Sequence[RunResult], *, unfold_first: bool = False) -> None:
        self.runs = runs
        self.unfold_first = unfold_first
        self.comparisons = compare(runs)
        self.choices = Choices.of(runs)
        self.downloads = Downloads()

    # -- what others add ---------------------------------------------------------------------------------------

    def chapter(self, chapter: Chapter) -> Html:
        return _section(chapter.name, chapter.title, *map(self._part, chapter.parts))

    def _part(self, part: Part) -> Html:
        if isinstance(part, Shown):
            return element("div", self._table(part.table, part.name), class_="block", data_setting=part.setting)
        if isinstance(part, Folded):
            words = join([part.heading, " ", element("span", part.remark, class_="count") if part.remark else ""])
            summary = element("summary", element("h3", words) if part.large else words)
            content = element("div", *map(self._part, part.parts), class_="folded")
            kind = "comparison" if part.large else None
            return element("details", summary, content, class_=kind, open=part.open)
        return part

    # -- tables ------------------------------------------------------------------------------------------------

    def summary(self) -> Html:
        blocks = []
        several = several_orders(self.comparisons)
        for number, orders in enumerate(several):
            for setting in SETTINGS:
                tables = [
                    self._table(order_table(orders, setting, metric.key), f"orders-{number + 1}-{setting}-{metric.key}")
                    for metric in CORE_METRICS
                ]
                where = self.choices.benchmark(orders.benchmark)
                blocks.append(element("div", *tables, class_="block", data_setting=setting, data_benchmark=where))
        for setting in SETTINGS:
            table = summary_table(self.runs, setting)
            content = self._table(table, f"summary-{setting}")
            if several and len(table.rows) > _FEW_ROWS:  # the tables above sum it up
                words = f"{SETTING_NAMES[setting]}: every order by itself ({count_of(len(table.rows), 'row')})"
                content = element("details", element("summary", words), content)
            blocks.append(element("div", content, class_="block", data_setting=setting))
        meanings = []
        for metric in METRIC_COLUMNS:
            better = "Higher is better." if metric.better == "up" else "Lower is better; below zero is a gain."
            meaning = metric.meaning[0].upper() + metric.meaning[1:]
            meanings += [element("dt", metric.name), element("dd", f"{meaning}. {better}")]
        reading = element("details", element("summary", "What the columns mean"), element("dl", *meanings))
        return _section("summary", "Summary", *blocks, reading)

    def costs(self) -> Html:
        table = cost_table(self.runs)
        if not table.rows:
            return _section("costs", "Time and memory", element("p", "The runs have not recorded any task yet."))
        words = f"Show the table ({count_of(len(table.rows), 'row')})"
        folded = element("details", element("summary", words), self._table(table, "time-and-memory"))
        return _section("costs", "Time and memory", folded)

    def _table(self, table: Table, file_name: str) -> Html:
        shown = table.shown()
        head = element("tr", *(_column(column) for column in shown.columns))
        about_methods = any(row.label is not None for row in shown.rows)
        rows = [self._row(row, shown.columns, about_methods) for row in shown.rows]
        grid = element(
            "table",
            element("caption", table.title),
            element("thead", head),
            element("tbody", *rows),
            class_="numbers methods" if about_methods else "numbers",
        )
        notes = [element("p", note, class_="note") for note in table.notes]
        return element(
            "div", _scroll(grid, table.title), *notes, self.downloads.add(table, file_name), class_="with-notes"
        )

    def _row(self, row: Row, columns: Sequence[Column], about_methods: bool) -> Html:
        index = None if row.label is None else self.choices.methods.get(row.label)
        is_reference = row.label is None and about_methods
        first = element("th", "" if index is None else legend_mark(index), row.cells[0].main, scope="row")
        cells = [_cell(cell, column) for cell, column in zip(row.cells[1:], columns[1:], strict=True)]
        benchmark, order = row.about
        return element(
            "tr",
            first,
            *cells,
            class_=" ".join(["reference"] * is_reference + ["starts-block"] * row.starts_block) or None,
            data_method=self.choices.method(row.label),
            data_benchmark=self.choices.benchmark(benchmark),
            data_order=self.choices.order(order),
        )

    # -- drawings ----------------------------------------------------------------------------------------------

    def trade_off(self) -> Html | None:
        drawn = {
            (number, setting): image
            for number, comparison in enumerate(self.comparisons)
            for setting in SETTINGS
            if (image := scatter(comparison, setting, self.choices.methods))
        }
        if not drawn:
            return None
        words = "Upwards is more accurate, to the left is less forgotten, so the upper left is best; in percent. "
        words += "Each mark is a method, the small ones its runs. The dashed line is the zero-shot accuracy."
        content = self._blocks(lambda number, setting: drawn.get((number, setting)), "pair")
        return _section(
            "trade-off", "Accuracy and forgetting", element("p", words, class_="legend"), self._keys(), *content
        )

    def curves(self) -> Html:
        explained = "Accuracy in percent on each task as the model learns one task after another. "
        explained += "The vertical line and the mark show when the task itself was learned."
        if any(len(group.runs) > 1 for comparison in self.comparisons for group in comparison.groups):
            explained += " Lines are means over seeds, bands reach from the lowest to the highest seed."
        content = self._blocks(lambda number, setting: curves(self.comparisons[number], setting, self.choices.methods))
        return _section("curves", "Task by task", element("p", explained, class_="legend"), self._keys(), *content)

    def distances(self, runs: Sequence[RunResult]) -> Html | None:
        blocks = []
        for whole, name in zip(self.comparisons, self._names(), strict=True):
            comparison = _only(whole, runs)
            if found := measured(comparison):
                panels = distance_panels(comparison, found, self.choices.methods)
                content = [panels, box_plot(comparison, found, self.choices.methods)]
                blocks.append(self._of(comparison, name, content))
        if not blocks:
            return None
        words = (
            "The distance 1 − cosine between test images and the texts of their own classes after the last task; to "
            "the left is closer. Dashed: the starting model. Runs with several seeds are taken together."
        )
        return _section("distances", "Images and texts", element("p", words, class_="legend"), self._keys(), *blocks)

    def matrices(self, runs: Sequence[RunResult]) -> Html:
        def maps(number: int, setting: Setting) -> Html | None:
            comparison = _only(self.comparisons[number], runs)
            if not comparison.groups:
                return None
            drawn = [self._group_maps(group, setting, f"{number + 1}-{setting}") for group in comparison.groups]
            cell = "2.75rem" if upright_names(comparison.tasks) else "3.75rem"
            return element("div", *drawn, class_="maps", style=f"--tasks:{len(comparison.tasks)};--cell:{cell}")

        return _section("matrices", "Accuracy matrices", heat_legend(), *self._blocks(maps))

    def _group_maps(self, group: Group, setting: Setting, suffix: str) -> Html:
        """The first seed's matrix open, the others folded away: seven seeds would bury the next method."""
        maps = [self._one_map(run, setting, f"{suffix}-{number + 1}") for number, run in enumerate(group.runs)]
        rest: Html | str = ""
        if len(maps) > 1:
            more = element("summary", f"{count_of(len(maps) - 1, 'more run')} of {group.label}")
            rest = element("details", more, *maps[1:])
        return element("div", maps[0], rest, class_="map", data_method=self.choices.method(group.label))

    def _one_map(self, run: RunResult, setting: Setting, suffix: str) -> Html:
        table = matrix_table(run, setting)
        state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.tasks), 'task')}"
        detail = element("span", f"{SETTING_NAMES[setting]}, seed {run.seed}{state}", class_="count")
        caption = join([legend_mark(self.choices.methods[run.label]), run.label, " ", detail])
        name = f"matrix-{slug(run.label)}-{suffix}"
        # Two labels may have one slug; the method's number tells them apart.
        name = name if name not in self.downloads.files else f"{name}-{self.choices.methods[run.label]}"
        return join([_scroll(heatmap(run, setting, caption), table.title), self.downloads.add(table, name)])

    # -- what sections share -----------------------------------------------------------------------------------

    def _blocks(self, draw: Callable[[int, Setting], Html | None], kind: str = "") -> list[Html]:
        """What `draw` makes of every comparison in both settings; folded where there is a lot of it."""
        several = len(self.comparisons) > 1
        blocks = []
        for number, (comparison, name) in enumerate(zip(self.comparisons, self._names(), strict=True)):
            parts = []
            for setting in SETTINGS:
                if content := draw(number, setting):
                    meaning = element("span", SETTING_MEANINGS[setting], class_="count")
                    heading = element("h4" if several else "h3", SETTING_NAMES[setting], " ", meaning)
                    parts.append(element("div", heading, content, class_="block", data_setting=setting))
            if not parts:
                continue
            blocks.append(self._of(comparison, name, parts, kind))
        return blocks

    def _of(self, comparison: Comparison, name: str, parts: Sequence[Html], kind: str = "") -> Html:
        """What belongs to one comparison: under its name where there are several, folded where runs are many."""
        content = element("div", *parts, class_=kind or None)
        where = {
            "data_benchmark": self.choices.benchmark(comparison.benchmark),
            "data_order": self.choices.order(comparison.order),
        }
        if len(self.comparisons) == 1:
            return element("div", content, **where)
        runs = element("span", count_of(len(comparison.runs), "run"), class_="count")
        summary = element("summary", element("h3", name, " ", runs))
        first = comparison.order == self.comparisons[0].order and self.unfold_first
        few = len(self.runs) <= _FEW_RUNS
        return element("details", summary, content, class_="comparison", open=few or first, **where)

    def _names(self) -> list[str]:
        """A name for each comparison; the tasks are spelled out where the rest does not tell two apart."""
        short = [comparison.name for comparison in self.comparisons]
        long = [f"{comparison.name}: {', '.join(comparison.tasks)}" for comparison in self.comparisons]
        counts = Counter(short)
        return [name if counts[name] == 1 else spelled for name, spelled in zip(short, long, strict=True)]

    def _keys(self) -> Html:
        methods = self.choices.methods.items()
        keys = [element("li", legend_mark(number), label, data_method=f"method-{number}") for label, number in methods]
        dash = element("line", class_="zero-shot", x1=0, y1=8, x2=24, y2=8)
        dashed = element("svg", dash, class_="key wide", viewBox="0 0 24 16", aria_hidden="true")
        return element("ul", *keys, element("li", dashed, "Zero-shot"), class_="keys")


def _only(comparison: Comparison, runs: Sequence[RunResult]) -> Comparison:
    """A comparison without the runs that are not among these."""
    wanted = {id(run) for run in runs}
    kept = [Group(group.label, tuple(run for run in group.runs if id(run) in wanted)) for group in comparison.groups]
    return replace(comparison, groups=tuple(group for group in kept if group.runs))


def _column(column: Column) -> Html:
    arrow: Html | str = ""
    if column.better:
        sign, words = ("↑", "higher is better") if column.better == "up" else ("↓", "lower is better")
        arrow = join(
            [
                element("span", f"\N{NO-BREAK SPACE}{sign}", aria_hidden="true"),
                element("span", f" ({words})", class_="sr"),
            ]
        )
    return element("th", column.name, arrow, scope="col", class_=_kind(column))


def _kind(column: Column) -> str | None:
    return " ".join(["text"] * (not column.numeric) + ["apart"] * column.apart) or None


def _cell(cell: Cell, column: Column) -> Html:
    main: str = element("strong", cell.main) if cell.best else element("u", cell.main) if cell.second else cell.main
    spread = "" if cell.spread is None else element("span", f" ± {cell.spread_text}", class_="spread")
    sign: Html | str = ""
    if cell.significant:
        words = element("span", " significantly better than the runner-up", class_="sr")
        sign = join([element("span", f" {SIGNIFICANT}", aria_hidden="true"), words])
    return element("td", main, spread, sign, class_=_kind(column))
