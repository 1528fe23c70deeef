"""The report page: one HTML file that needs no network, no server and no script to be read."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tasso.report.collect import SETTINGS, ReportError, RunResult, Setting
from tasso.report.colours import colour_rules, legend_mark
from tasso.report.conclusion import conclude
from tasso.report.curves import curves
from tasso.report.formats import to_csv
from tasso.report.gallery import Gallery, gallery_section
from tasso.report.groups import Comparison, Group, compare
from tasso.report.heatmap import heat_legend, heatmap
from tasso.report.markup import Html, csv_link, element, join, raw, slug
from tasso.report.tables import (
    METRIC_COLUMNS,
    SETTING_MEANINGS,
    SETTING_NAMES,
    Cell,
    Column,
    Row,
    Table,
    cost_table,
    count_of,
    matrix_table,
    summary_table,
)

# The page must never reach out: the browser itself is told to refuse everything that is not in the file.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_page(
    runs: Sequence[RunResult],
    out_path: str | PathLike[str],
    *,
    title: str,
    intro: str,
    gallery: Gallery | None = None,
    sentence: str | None = None,
) -> Path:
    """Write the report of `runs` to `out_path` and return that path.

    `intro` is plain text, blank lines part paragraphs. `sentence` is the conclusion at the top; without
    one it is worked out from the runs. `gallery` maps a domain to (class name, PNG bytes) pairs.
    """
    out_path = Path(out_path)
    content = build_page(runs, title=title, intro=intro, gallery=gallery, sentence=sentence)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = out_path.with_name(f".{out_path.name}.{os.getpid()}.part")
    try:
        # A name may hold half a surrogate pair, which UTF-8 cannot: write those as character references.
        partial_path.write_bytes(content.encode("utf-8", "xmlcharrefreplace"))
        partial_path.replace(out_path)
    finally:
        partial_path.unlink(missing_ok=True)
    return out_path


def build_page(
    runs: Sequence[RunResult],
    *,
    title: str,
    intro: str,
    gallery: Gallery | None = None,
    sentence: str | None = None,
) -> str:
    """The page's HTML. The same runs always give the same text."""
    if not runs:
        raise ReportError("a report page needs at least one run")
    comparisons = compare(runs)
    methods = {label: index for index, label in enumerate(dict.fromkeys(run.label for run in runs))}
    names = _names(comparisons)
    paragraphs = [element("p", text) for text in re.split(r"\n\s*\n", intro.strip()) if text]
    links = [("summary", "Summary"), ("curves", "Task by task"), ("matrices", "Accuracy matrices")]
    links += [("costs", "Time and memory")] + ([("images", "Images")] if gallery else [])
    contents = [element("li", element("a", text, href=f"#{target}")) for target, text in links]
    header = element(
        "header",
        element("h1", title),
        element("p", conclude(runs) if sentence is None else sentence, class_="conclusion"),
        *paragraphs,
        element("nav", element("ul", *contents), aria_label="Contents"),
    )
    body = element(
        "main",
        header,
        _filters(methods),
        _summary_section(runs, methods),
        _curves_section(comparisons, names, methods),
        _matrices_section(comparisons, names, methods),
        _costs_section(runs, methods),
        gallery_section(gallery) if gallery else "",
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
    page = element("html", head, element("body", body, raw("script", _resource("page.js"))), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _resource(name: str) -> str:
    return (files("tasso.report") / name).read_text(encoding="utf-8")


def _names(comparisons: Sequence[Comparison]) -> list[str]:
    """A name for each comparison; the tasks are spelled out where the rest does not tell two apart."""
    counts = Counter(comparison.name for comparison in comparisons)
    return [
        comparison.name if counts[comparison.name] == 1 else f"{comparison.name}: {', '.join(comparison.tasks)}"
        for comparison in comparisons
    ]


def _filters(methods: Mapping[str, int]) -> Html:
    """Buttons that need the script; it takes `hidden` away, so that without it none is offered in vain."""

    def button(text: str, mark: Html | None = None, *, pressed: bool, **data: str) -> Html:
        state = "true" if pressed else "false"
        return element("button", mark or "", text, type="button", aria_pressed=state, **data)

    settings = [button("Both", pressed=True, data_show="both")]
    settings += [button(SETTING_NAMES[name], pressed=False, data_show=name) for name in SETTINGS]
    toggles = [
        button(label, legend_mark(index), pressed=True, data_toggle=f"method-{index}")
        for label, index in methods.items()
    ]
    return element(
        "div",
        element("div", element("span", "Setting", class_="name"), *settings, role="group", aria_label="Setting"),
        element("div", element("span", "Methods", class_="name"), *toggles, role="group", aria_label="Methods"),
        element("p", class_="sr", id="filter-status", role="status"),
        class_="filters",
        id="filters",
        hidden=True,
    )


def _summary_section(runs: Sequence[RunResult], methods: Mapping[str, int]) -> Html:
    blocks = []
    for setting in SETTINGS:
        table = summary_table(runs, setting)
        block = _table(table, methods, file_name=f"summary-{setting}.csv")
        blocks.append(element("div", block, class_="block", data_setting=setting))
    meanings = []
    for metric in METRIC_COLUMNS:
        better = "Higher is better." if metric.better == "up" else "Lower is better; below zero is a gain."
        meaning = metric.meaning[0].upper() + metric.meaning[1:]
        meanings += [element("dt", metric.name), element("dd", f"{meaning}. {better}")]
    reading = element("details", element("summary", "What the columns mean"), element("dl", *meanings))
    return element("section", element("h2", "Summary", id="summary"), *blocks, reading)


def _table(table: Table, methods: Mapping[str, int], *, file_name: str) -> Html:
    shown = table.shown()
    head = element("tr", *(_column(column) for column in shown.columns))
    rows = [_row(row, shown.columns, methods) for row in shown.rows]
    grid = element(
        "table",
        element("caption", table.title),
        element("thead", head),
        element("tbody", *rows),
        class_="numbers",
    )
    notes = [element("p", note, class_="note") for note in table.notes]
    return join([_scroll(grid, table.title), *notes, csv_link(to_csv(table), file_name, table.title)])


def _scroll(content: Html, name: str) -> Html:
    """A box that scrolls sideways on a narrow screen; reachable by keyboard, hence the tab stop."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


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
    return element("th", column.name, arrow, scope="col", class_=None if column.numeric else "text")


def _row(row: Row, columns: Sequence[Column], methods: Mapping[str, int]) -> Html:
    index = None if row.label is None else methods[row.label]
    first = element("th", "" if index is None else legend_mark(index), row.cells[0].main, scope="row")
    cells = [_cell(cell, column) for cell, column in zip(row.cells[1:], columns[1:], strict=True)]
    return element(
        "tr",
        first,
        *cells,
        class_=" ".join(["reference"] * (index is None) + ["starts-block"] * row.starts_block) or None,
        data_method=None if index is None else f"method-{index}",
    )


def _cell(cell: Cell, column: Column) -> Html:
    main: str = element("strong", cell.main) if cell.best else cell.main
    spread = "" if cell.spread is None else element("span", f" ± {cell.spread_text}", class_="spread")
    return element("td", main, spread, class_=None if column.numeric else "text")


def _setting_heading(names: Sequence[str], name: str, setting: Setting) -> Html:
    """Names the comparison only where there are several."""
    text = SETTING_NAMES[setting] if len(names) == 1 else f"{name}: {SETTING_NAMES[setting]}"
    return element("h3", text, " ", element("span", SETTING_MEANINGS[setting], class_="count"))


def _curves_section(comparisons: Sequence[Comparison], names: Sequence[str], methods: Mapping[str, int]) -> Html:
    keys = [element("li", legend_mark(index), label, data_method=f"method-{index}") for label, index in methods.items()]
    dashed = element(
        "svg",
        element("line", class_="zero-shot", x1=0, y1=8, x2=24, y2=8),
        class_="key wide",
        viewBox="0 0 24 16",
        width=24,
        height=16,
        aria_hidden="true",
    )
    legend = element("ul", *keys, element("li", dashed, "Zero-shot"), class_="keys")
    explained = "Accuracy in percent on each task as the model learns one task after another. "
    explained += "The vertical line and the mark show when the task itself was learned."
    if any(len(group.runs) > 1 for comparison in comparisons for group in comparison.groups):
        explained += " Lines are means over seeds, bands reach from the lowest to the highest seed."
    blocks = []
    for comparison, name in zip(comparisons, names, strict=True):
        for setting in SETTINGS:
            heading = _setting_heading(names, name, setting)
            panels = curves(comparison, setting, methods)
            blocks.append(element("div", heading, panels, class_="block", data_setting=setting))
    return element(
        "section",
        element("h2", "Task by task", id="curves"),
        element("p", explained, class_="legend"),
        legend,
        *blocks,
    )


def _matrices_section(comparisons: Sequence[Comparison], names: Sequence[str], methods: Mapping[str, int]) -> Html:
    blocks = []
    for number, (comparison, name) in enumerate(zip(comparisons, names, strict=True)):
        for setting in SETTINGS:
            maps = [
                _group_maps(group, setting, methods[group.label], f"{number + 1}-{setting}")
                for group in comparison.groups
            ]
            grid = element("div", *maps, class_="maps", style=f"--tasks:{len(comparison.tasks)}")
            heading = _setting_heading(names, name, setting)
            blocks.append(element("div", heading, grid, class_="block", data_setting=setting))
    return element("section", element("h2", "Accuracy matrices", id="matrices"), heat_legend(), *blocks)


def _group_maps(group: Group, setting: Setting, index: int, file_suffix: str) -> Html:
    """The first seed's matrix open, the others folded away: seven seeds would bury the next method."""
    maps = [_one_map(run, setting, index, f"{file_suffix}-{number + 1}") for number, run in enumerate(group.runs)]
    rest: Html | str = ""
    if len(maps) > 1:
        more = element("summary", f"{count_of(len(maps) - 1, 'more run')} of {group.label}")
        rest = element("details", more, *maps[1:])
    return element("div", maps[0], rest, class_="map", data_method=f"method-{index}")


def _one_map(run: RunResult, setting: Setting, index: int, file_suffix: str) -> Html:
    table = matrix_table(run, setting)
    state = "" if run.finished else f", unfinished: {run.learned} of {count_of(len(run.tasks), 'task')}"
    detail = element("span", f"{SETTING_NAMES[setting]}, seed {run.seed}{state}", class_="count")
    caption = join([legend_mark(index), run.label, " ", detail])
    file_name = f"matrix-{slug(run.label)}-{file_suffix}.csv"
    return join(
        [
            _scroll(heatmap(run, setting, caption), table.title),
            element("p", csv_link(to_csv(table), file_name, table.title)),
        ]
    )


def _costs_section(runs: Sequence[RunResult], methods: Mapping[str, int]) -> Html:
    table = cost_table(runs)
    content = _table(table, methods, file_name="time-and-memory.csv")
    if not table.rows:
        content = element("p", "The runs have not recorded any task yet.")
    steps = count_of(len(table.rows), "row")
    folded = element("details", element("summary", f"Show the table ({steps})"), content)
    return element("section", element("h2", "Time and memory", id="costs"), folded)
