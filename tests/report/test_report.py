"""Reports: reading run folders, tables in every format, and the page."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import pytest

from run_results import TASKS, Json, results
from tasso import report
from tasso.report import (
    ReportError,
    accuracies,
    build_page,
    conclude,
    cost_table,
    distances,
    matrix_table,
    metrics,
    print_table,
    read_runs,
    run_table,
    summary_table,
    to_csv,
    to_latex,
    to_markdown,
    write_page,
)
from tasso.report.colours import HEAT_LEVELS, contrast, heat_colour, heat_level, ink
from tasso.report.frame import COLUMNS
from tasso.report.looks import PLACES, STAND_INS, looks, short_names
from tasso.report.tables import METRIC_COLUMNS


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run folder and returns it."""

    def write(name: str, content: Json | str) -> Path:
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        (path / "config.yaml").write_text("seed: 1\n")
        text = content if isinstance(content, str) else json.dumps(content)
        (path / "results.json").write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def runs(folder: Callable[..., Path], tmp_path: Path) -> pd.DataFrame:
    """Two methods; the first with three seeds, and an unfinished run of the second."""
    for seed in (1, 2, 3):
        folder(f"a-{seed}", results("TASSO", seed, shift=float(seed)))
    folder("b-1", results("LwF", 1, shift=8.0))
    folder("b-2", results("LwF", 2, shift=9.0, rows=2))
    return read_runs([tmp_path / "runs"])


def first(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first run."""
    return runs[runs["run"] == runs["run"].iloc[0]]


EMPTY = pd.DataFrame(columns=COLUMNS)


def png(colour: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = b"".join(b"\0" + bytes([colour, 90, 160]) * 8 for _ in range(6))
    size = struct.pack(">IIBBBBB", 8, 6, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size)
    return start + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


# -- reading ---------------------------------------------------------------------------------------


def test_report_needs_no_torch() -> None:
    """Results are read and drawn where nothing can be trained."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['open_clip'] = None;"
        "import tasso.report; from tasso.report import folder, results, study, sections, templates;"
        "assert not [name for name in sys.modules if name.startswith(('tasso.models', 'tasso.training'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_finds_runs_at_any_depth_once_and_in_order(folder: Callable[..., Path], tmp_path: Path) -> None:
    deep = folder("z/deep/er", results("A"))
    folder("b", results("B"))
    (folder("a", results("C")) / "checkpoints").mkdir()
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    folder(".hidden", "not json")
    found = read_runs([tmp_path / "runs", deep, str(deep / "results.json")])
    assert list(run_table(found)["label"]) == ["C", "B", "A"]
    assert list(run_table(read_runs(deep))["label"]) == ["A"]


def test_unfinished_run(folder: Callable[..., Path]) -> None:
    run = read_runs([folder("one", results(rows=2))])
    assert run_table(run)[["finished", "learned"]].values.tolist() == [[False, 2]]
    assert metrics(run, "mtil").isna().all(axis=None)
    fresh = read_runs([folder("two", results(rows=0))])
    assert run_table(fresh)["learned"].tolist() == [0]
    build_page(fresh, title="t", intro="")


def change(content: Json, path: str, value: Any) -> Json:
    """`content` with the value at `a.b.0` replaced, or removed where the value is Ellipsis."""
    *parents, last = path.split(".")
    place: Any = content
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    last_key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[last_key]
    else:
        place[last_key] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("label", ..., "missing key 'label'"),
        ("mcil", ..., "missing key 'mcil'"),
        ("mtil.matrix", ..., "missing key 'mtil.matrix'"),
        ("mtil.metrics.transfer", ..., "missing key 'mtil.metrics.transfer'"),
        ("per_task.1.task", ..., r"missing key 'per_task\[1\].task'"),
        ("version", 2, "version: this tasso reads version 1"),
        ("seed", "one", "seed: expected a whole number, found 'one'"),
        ("label", None, "label: expected text, found null"),
        ("finished", 1, "finished: expected true or false"),
        ("tasks", [], "tasks: the list is empty"),
        ("tasks", ["a", "a", "b"], "tasks: a task is named twice"),
        ("mtil.zero_shot", [1.0], "mtil.zero_shot: wrong size: 1 values for 3 tasks"),
        ("mtil.matrix.1", [1.0, 2.0], r"mtil.matrix\[1\]: wrong size: 2 values for 3 tasks"),
        ("mcil.matrix.2", ..., "mcil.matrix: wrong size: 2 rows for 3 tasks in a finished run"),
        ("mtil.matrix.0.2", "high", r"mtil.matrix\[0\]\[2\]: expected a percent, found 'high'"),
        ("mtil.matrix.0.2", float("nan"), r"mtil.matrix\[0\]\[2\]: expected a percent, found nan"),
        ("mtil.matrix.0.2", 101.0, "expected a percent between 0 and 100, found 101.0"),
        ("mtil.metrics", None, "mtil.metrics: null in a finished run"),
        ("mtil.metrics.last", True, "mtil.metrics.last: expected a finite number or null"),
        ("mtil", 3, "mtil: expected an object, found 3"),
        ("per_task", {}, "per_task: expected a list, found an object"),
        ("classes.aircraft", 1.5, "classes.aircraft: expected a whole number"),
    ],
)
def test_bad_results_name_the_file_and_the_key(folder: Callable[..., Path], path: str, value: Any, words: str) -> None:
    bad = folder("bad", change(results(tasks=list(TASKS)), path, value))
    with pytest.raises(ReportError, match=words) as caught:
        read_runs([bad])
    assert str(bad / "results.json") in str(caught.value)


def test_bad_files_and_folders(folder: Callable[..., Path], tmp_path: Path) -> None:
    cut = folder("cut", '{"version": 1,')
    with pytest.raises(ReportError, match="not valid JSON") as caught:
        read_runs([cut])
    assert str(cut / "results.json") in str(caught.value)
    with pytest.raises(ReportError, match="expected a JSON object, found a list"):
        read_runs([folder("list", "[]")])

    started = tmp_path / "more" / "started"
    started.mkdir(parents=True)
    (started / "config.yaml").write_text("seed: 1\n")
    for path in (started, started.parent):
        with pytest.raises(ReportError, match=re.escape(f"{started}: this run has no results.json yet")):
            read_runs([path])

    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ReportError, match=re.escape(str(empty))):
        read_runs([empty])
    with pytest.raises(ReportError, match="nowhere: no such run folder"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ReportError, match=r"config\.yaml: expected a run folder"):
        read_runs([started / "config.yaml"])


# -- tables ----------------------------------------------------------------------------------------


def test_summary_numbers(runs: pd.DataFrame) -> None:
    table = summary_table(runs, "mtil")
    assert table.title == "MTIL on atlas, nano, order S1, 300 steps per task"
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "evaluation.md").read_text(encoding="utf-8")
    assert all(f"{metric.meaning} |" in guide for metric in METRIC_COLUMNS), "the docs have the words of the tables"
    assert all(f"{metric.name}: {metric.meaning}" in table.notes[1] for metric in METRIC_COLUMNS[3:])
    zero_shot, tasso, lwf = (row.cells for row in table.shown().rows)
    names = [column.name for column in table.shown().columns]
    accuracy = names.index("Accuracy")

    assert [cell.text for cell in zero_shot] == ["Zero-shot", "–", "31.50", "–", "–", "32.25", "31.50", "31.50"]
    numbers = list(metrics(runs[runs["label"] == "TASSO"], "mtil")["accuracy"])
    assert len(numbers) == 3
    assert tasso[accuracy].value == pytest.approx(fmean(numbers))
    assert tasso[accuracy].spread == pytest.approx(stdev(numbers)) == pytest.approx(1.0)
    assert tasso[names.index("Forgetting")].text == "4.00 ± 1.00"
    assert tasso[names.index("Runs")].text == "3"
    assert lwf[accuracy].spread is None
    assert lwf[names.index("Runs")].text == "1"
    assert "LwF: 1 unfinished run left out." in table.notes
    assert any("sample standard deviation (n - 1) over n = 3" in note for note in table.notes)


def test_best_follows_the_direction(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder("a", results("A", shift=0.0))
    folder("b", results("B", shift=4.0))
    rows = summary_table(read_runs(tmp_path / "runs"), "mcil").shown().rows
    assert [cell.best for cell in rows[0].cells] == [False] * 8  # zero-shot is a reference, not a contestant
    assert [cell.best for cell in rows[1].cells] == [False, False] + [True] * 6
    assert not any(cell.best for cell in rows[2].cells)


def test_ties_are_both_best_and_a_lone_method_is_not(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder("a", results("A", shift=1.0))
    alone = summary_table(read_runs(tmp_path / "runs"), "mtil")
    assert not any(cell.best for row in alone.rows for cell in row.cells)
    folder("b", results("B", shift=1.001))
    tied = summary_table(read_runs(tmp_path / "runs"), "mtil").shown()
    assert all(row.cells[2].best for row in tied.rows[1:])


def test_runs_that_differ_in_more_than_the_seed_are_kept_apart(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder("a", results("A", 1))
    folder("b", results("A", 2, sequence="S2", tasks=TASKS[::-1]))
    folder("c", results("A", 3, benchmark="globe"))
    folder("d", results("A", 1))
    table = summary_table(read_runs(tmp_path / "runs"), "mtil")
    shown = table.shown()
    assert [column.name for column in shown.columns][:4] == ["Method", "Benchmark", "Order", "Runs"]
    assert [row.cells[3].text for row in shown.rows if row.label] == ["2", "1", "1"]
    assert [row.starts_block for row in shown.rows] == [False, False, True, False, True, False]
    assert "A on atlas, nano, order S1: more than one run with seed 1." in table.notes
    assert to_latex(table).count(r"\midrule") == 3


def test_matrix_table(runs: pd.DataFrame) -> None:
    table = matrix_table(runs[~runs["finished"]], "mtil")
    assert table.title == "LwF, seed 2: MTIL accuracy on atlas, nano, order S1, 300 steps per task"
    assert [column.name for column in table.columns] == ["After task", *TASKS, "Mean"]
    assert [row.cells[0].text for row in table.rows] == ["Zero-shot", "1. aircraft", "2. textures"]
    assert [cell.text for cell in table.rows[2].cells] == ["2. textures", "59.00", "62.50", "30.75", "50.75"]
    assert [cell.learned for cell in table.rows[2].cells] == [False, False, True, False, False]
    assert "Unfinished run: 2 of 3 tasks learned." in table.notes


def test_cost_table(runs: pd.DataFrame) -> None:
    table = cost_table(runs).shown()
    assert len(table.rows) == 4 * 3 + 2
    assert [cell.text for cell in table.rows[0].cells] == (
        ["TASSO", "1", "aircraft", "300", "12.3", "2300", "3.0", "–", "4.900", "0.7", "1.2"]
    )


def test_markdown(runs: pd.DataFrame) -> None:
    text = to_markdown(summary_table(runs, "mtil"))
    assert "| Method | Runs | Accuracy ↑ | Forgetting ↓ |" in text
    assert "|:---|---:|---:|" in text
    assert "| TASSO | 3 | **67.50** ± 1.00 | **4.00** ± 1.00 |" in text
    assert "| LwF | 1 | 61.50 | 10.00 |" in text  # of two, the second needs no mark
    assert "*60.50*" not in text
    assert "*69.00*" in to_markdown(matrix_table(first(runs), "mtil"))  # just learned


def test_negative_and_zero_are_written_plainly(folder: Callable[..., Path], tmp_path: Path) -> None:
    content = change(results("A", tasks=list(TASKS)), "mtil.metrics.forgetting", -0.0001)
    folder("a", content)
    row = summary_table(read_runs(tmp_path / "runs"), "mtil").shown().rows[1]
    assert [cell.text for cell in row.cells[3:5]] == ["0.00", "-0.50"]


def test_escapes_in_markdown_and_latex(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder("a", results("A|*b*_<i>", benchmark=r"50% & $x_1$ #{~^}\n"))
    table = summary_table(read_runs(tmp_path / "runs"), "mtil")
    assert r"| A\|\*b\*\_\<i\> |" in to_markdown(table)
    latex = to_latex(table)
    assert r"A\textbar{}*b*\_\textless{}i\textgreater{}" in latex
    assert r"50\% \& \$x\_1\$ \#\{\textasciitilde{}\textasciicircum{}\}\textbackslash{}n" in latex


def test_latex(runs: pd.DataFrame) -> None:
    text = to_latex(summary_table(runs, "mtil"))
    for part in (
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r"Accuracy $\uparrow$ & Forgetting $\downarrow$",
        r"TASSO & $3$ & $\mathbf{67.50} \pm 1.00$",
        r"LwF & $1$ & $61.50$",
        r"Zero-shot & -- & $31.50$ & --",
        r"\bottomrule",
    ):
        assert part in text
    assert text.count("{") == text.count("}")
    assert r"$\underline{69.00}$" in to_latex(matrix_table(first(runs), "mtil"))


def test_csv(runs: pd.DataFrame) -> None:
    zero_shot, tasso, lwf = csv.DictReader(io.StringIO(to_csv(summary_table(runs, "mtil"))))
    assert zero_shot["Method"] == "Zero-shot"
    assert (zero_shot["Accuracy"], zero_shot["Accuracy std"], zero_shot["Last"]) == ("31.5", "", "31.5")
    assert (tasso["Benchmark"], tasso["Model"], tasso["Order"], tasso["Runs"]) == ("atlas", "nano", "S1", "3")
    assert (float(tasso["Accuracy"]), float(tasso["Accuracy std"])) == (67.5, 1.0)
    assert (float(lwf["Accuracy"]), lwf["Accuracy std"]) == (61.5, "")


def test_csv_quotes(folder: Callable[..., Path]) -> None:
    run = read_runs(folder("a", results(tasks=['one, "two"', "three"])))
    rows = list(csv.reader(io.StringIO(to_csv(matrix_table(run, "mtil")))))
    assert rows[0][1] == 'one, "two"'
    assert rows[2][0] == '1. one, "two"'


def test_print(runs: pd.DataFrame) -> None:
    table, out = summary_table(runs, "mtil"), io.StringIO()
    print_table(table, out)
    for part in ("MTIL on atlas", "Zero-shot degradation ↓", "67.50 ± 1.00", "61.50", *table.notes):
        assert part in " ".join(out.getvalue().split())


def test_rich_takes_brackets_as_text_and_drops_no_column(
    folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich treat the file as a terminal
    out = io.StringIO()
    print_table(summary_table(read_runs(folder("a", results("[red]A[/]"))), "mtil"), out)
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "[red]A[/]" in text
    assert "Last" in text
    assert text.count("69.50") == 2  # accuracy and last


def test_tables_need_runs() -> None:
    for build in (
        lambda: summary_table(EMPTY, "mtil"),
        lambda: cost_table(EMPTY),
        lambda: build_page(EMPTY, title="", intro=""),
    ):
        with pytest.raises(ReportError, match="at least one run"):
            build()


def test_conclusion(runs: pd.DataFrame, folder: Callable[..., Path]) -> None:
    assert conclude(runs) == (
        "2 methods learned 3 tasks of atlas one after the other, starting from nano: TASSO is the most accurate at the "
        "end, 67.5 % MTIL accuracy (zero-shot: 31.5 %), 6.0 points above LwF, and forgets least, 4.0 points."
    )
    assert conclude(first(runs)) == (
        "TASSO learned 3 tasks of atlas one after the other, starting from nano: it ends at 68.5 % MTIL accuracy, 37.0 "
        "points above zero-shot (31.5 %), and forgets 3.0 points. Per task, zero-shot → at the end: aircraft 30.0 → "
        "65.0, textures 31.5 → 68.5, flowers 33.0 → 72.0."
    )
    of_seeds = conclude(runs[runs["label"] == "TASSO"])
    assert of_seeds.endswith("aircraft 30.0 → 64.0, textures 31.5 → 67.5, flowers 33.0 → 71.0.")
    many = [f"task-{number}" for number in range(10)]
    assert conclude(read_runs(folder("many", results(tasks=many)))).endswith("above zero-shot on 10 of 10 tasks.")
    own = first(runs).assign(benchmark="own (shots 5)")
    own.loc[(own["metric"] == "forgetting") & (own["setting"] == "mtil"), "value"] = -2.0
    assert conclude(own).startswith("TASSO learned 3 own tasks (shots 5) one after the other, starting from nano: it ")
    assert "and forgets nothing: earlier tasks gain 2.0 points. Per task, " in conclude(own)
    assert conclude(runs[~runs["finished"]]) == "No run has finished yet."
    elsewhere = read_runs(folder("elsewhere", results("LwF", benchmark="globe")))
    assert conclude(pd.concat([runs, elsewhere])) == conclude(runs)
    second = read_runs(folder("second", results("TASSO", benchmark="globe", shift=1.0)))
    assert (
        conclude(pd.concat([runs, elsewhere, second]))
        == "Highest final MTIL accuracy in 2 comparisons: TASSO in 1, LwF in 1."
    )
    apart = conclude(pd.concat([first(runs), elsewhere]))  # one after the other, since they cannot be compared
    assert apart.count(" learned 3 tasks of ") == 2
    assert apart.index("tasks of atlas") < apart.index("tasks of globe")


# -- colours ---------------------------------------------------------------------------------------


def test_contrast() -> None:
    pages = ("#ffffff", "#12161c")
    css = (Path(report.__file__).parent / "page.css").read_text(encoding="utf-8")
    assert all(f"--page: {page}" in css for page in pages)
    for mode, page in enumerate(pages):
        assert min(contrast(pair[mode], page) for pair, _, _ in PLACES.values()) >= 3
        for level in range(-HEAT_LEVELS, HEAT_LEVELS + 1):
            fill = heat_colour(level, mode)
            assert contrast(ink(fill), fill) >= 4.5
    for mode, names in enumerate((css.split("@media")[0], css.split("@media")[1])):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", names))
        for name in ("text", "quiet", "link"):
            assert contrast(colours[name], pages[mode]) >= 4.5
            assert contrast(colours[name], colours["panel"]) >= 4.5


def test_heat_tells_losses_from_gains() -> None:
    assert heat_level(0.0) == 0
    assert heat_level(-1.0) < 0 < heat_level(1.0)
    assert heat_level(-100.0) == -HEAT_LEVELS
    red, blue = heat_colour(heat_level(-10)), heat_colour(heat_level(10))
    assert int(red[1:3], 16) > int(red[5:], 16)
    assert int(blue[1:3], 16) < int(blue[5:], 16)


# -- looks -----------------------------------------------------------------------------------------


def labelled(*pairs: tuple[str, str]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["method", "label"])


def test_a_method_has_one_look_on_every_page() -> None:
    alone = looks(labelled(("tasso", "TASSO")))["TASSO"]
    among = looks(labelled(("snd", "SnD"), ("mine", "mine"), ("tasso", "TASSO (rank 72)"), ("tasso-both", "both")))
    assert (alone.colours, alone.marker, alone.dash) == PLACES["tasso"]
    ours = among["TASSO (rank 72)"]
    assert (ours.colours, ours.marker, ours.dash) == PLACES["tasso"]
    assert (among["both"].colours, among["both"].marker, among["both"].dash) == PLACES["tasso-both"]
    assert len({look.colours for look in among.values()}) == 4, "a method of one's own takes what is free"
    assert len({marker for _, marker, _ in PLACES.values()}) == len(PLACES)


def test_variants_are_told_apart() -> None:
    names = ["TASSO (rank 9)", "TASSO", *(f"TASSO (rank {rank})" for rank in range(10, 30))]
    found = looks(labelled(*(("tasso", name) for name in names)))
    assert found["TASSO"].colours == PLACES["tasso"][0], "the plainest one is the method"
    assert len({(look.colour, look.marker) for look in found.values()}) == len(names)
    assert len({look.colour for look in list(found.values())[:11]}) == 11, (
        "three shades, and eight places that are free"
    )


def test_names_are_short_with_footnotes() -> None:
    labels = [
        "GIFT (generator retrieval), retrieved images",
        "fine-tuning (both towers)",
        "TASSO",
        "TASSO (rank 9)",
        "(x",
    ]
    assert list(short_names(labels).values()) == [
        ("GIFT", "¹", f"generator retrieval; {STAND_INS['retrieved images']}"),
        ("fine-tuning", "²", "both towers"),
        ("TASSO", "", ""),
        ("TASSO (rank 9)", "", ""),
        ("(x", "", ""),
    ]
    beside = ["TASSO", "TASSO, both towers"]
    assert [name for name, _, _ in short_names(beside).values()] == beside, "what tells two apart stays"


# -- the page --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that tags balance while it collects ids, addresses and text."""

    VOID = frozenset({"meta", "img", "br", "hr"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> names an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)
            self.inside.append((self.open[-1], data))

    def texts_in(self, tag: str) -> list[str]:
        return [text for inside, text in self.inside if inside == tag]

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.tags if attribute in attrs]


GALLERY = {"aircraft": [("jet & co", png(10)), ("glider", png(200))], "textures": [("<b>brick</b>", png(60))]}


@pytest.mark.slow
def test_page_is_well_formed_and_stands_alone(runs: pd.DataFrame, tmp_path: Path) -> None:
    out = write_page(runs, tmp_path / "new" / "page.html", title="A & B", intro="One.\n\nTwo.", gallery=GALLERY)
    source = out.read_text(encoding="utf-8")
    page = Page(source)
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    for address in page.values("href") + page.values("src"):
        assert address.startswith(("#", "data:"))
        assert not address.startswith("#") or address[1:] in ids
    assert not re.search(r"https?://|url\(|@import", source)
    assert "A & B" in page.texts
    assert [text for text in page.texts if text in ("One.", "Two.")] == ["One.", "Two."]
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]  # no partial file stays
    assert source == build_page(runs, title="A & B", intro="One.\n\nTwo.", gallery=GALLERY)


@pytest.mark.slow
def test_page_says_everything(runs: pd.DataFrame) -> None:
    page = Page(build_page(runs, title="Report", intro="", gallery=GALLERY, sentence="TASSO wins."))
    text = "\n".join(page.texts)
    assert "TASSO wins." in text
    tips = {line for tip in page.texts_in("title") for line in tip.splitlines()}
    for setting in report.SETTINGS:
        for value in accuracies(runs, setting).stack():
            assert f"{value:.1f}" in page.texts_in("text")
            assert f"{value:.2f} %" in tips
    for setting in report.SETTINGS:
        for row in summary_table(runs, setting).shown().rows:
            for cell in row.cells:
                assert cell.main in page.texts
    matrices = [attrs for _, attrs in page.tags if "panel heat" in (attrs.get("class") or "")]
    assert len(matrices) == 2 * 5
    for tag, number in (("caption", 1 + 2 + 1), ("figcaption", 2 * 5 + 3), ("h1", 1)):
        assert sum(name == tag for name, _ in page.tags) == number
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(headings))
    assert page.values("class").count("cell learned") == 2 * 5 * 3
    assert "3 tasks" in text
    assert "1 more run of LwF" in text


@pytest.mark.slow
def test_page_carries_its_tables_as_files(runs: pd.DataFrame) -> None:
    source = build_page(runs, title="Report", intro="")
    found = re.search(r'<script type="application/json" id="files">(.*?)</script>', source, re.S)
    assert found
    files = json.loads(found[1])
    assert len(files) == 1 + 2 + 2 * len(run_table(runs)) + 1
    assert set(Page(source).values("data-save")) == set(files)
    assert files["summary-mcil"]["csv"] == to_csv(summary_table(runs, "mcil"))
    assert files["summary-mcil"]["tex"] == to_latex(summary_table(runs, "mcil"))
    assert files["matrix-001-tasso-s1-1-mtil"]["csv"] == to_csv(matrix_table(first(runs), "mtil"))


@pytest.mark.slow
def test_page_images(runs: pd.DataFrame) -> None:
    page = Page(build_page(runs, title="Report", intro="", gallery=GALLERY))
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert [image["alt"] for image in images] == [
        "Example of the class jet & co in aircraft",
        "Example of the class glider in aircraft",
        "Example of the class <b>brick</b> in textures",
    ]
    assert all((image["width"], image["height"]) == ("8", "6") for image in images)
    assert all((image["src"] or "").startswith("data:image/png;base64,iVBOR") for image in images)
    with pytest.raises(ReportError, match="gallery: birds: robin: not a PNG image"):
        build_page(runs, title="", intro="", gallery={"birds": [("robin", b"GIF89a")]})


@pytest.mark.slow
def test_page_escapes_every_text(folder: Callable[..., Path], tmp_path: Path) -> None:
    evil = '</script><script>alert("x")</script>'
    tasks = [evil, "'\"&amp;"]
    folder("a", results(evil, tasks=tasks, model=evil, benchmark=evil, sequence=evil))
    folder("b", results("half a pair \ud800", tasks=tasks))
    gallery = {evil: [(evil, png())]}
    found = read_runs(tmp_path / "runs")
    out = write_page(found, tmp_path / "x.html", title=evil, intro=evil, gallery=gallery, sentence=evil)
    page = Page(out.read_text(encoding="utf-8"))
    assert "half a pair ?" in page.texts
    scripts = [attrs.get("type") for tag, attrs in page.tags if tag == "script"]
    assert scripts == ["application/json"] * 2 + [None]
    assert page.texts.count(evil) > 5
    assert "'\"&amp;" in page.texts


@pytest.mark.slow
def test_page_tells_comparisons_apart(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder("a", results("A"))
    folder("b", results("A", tasks=TASKS[:2]))
    folder("c", results("A", benchmark="globe"))
    page = Page(build_page(read_runs(tmp_path / "runs"), title="t", intro=""))
    for name in ("atlas, nano, order S1: 3 tasks", "globe, nano, order S1"):
        assert sum(text.strip().startswith(name) for text in page.texts) == 4  # means, trade-off, curves and matrices


@pytest.mark.slow
def test_methods_keep_their_colour_and_mark(folder: Callable[..., Path], tmp_path: Path) -> None:
    for index in range(10):
        folder(f"{index}", results(f"M{index}", shift=float(index)))
    page = Page(build_page(read_runs(tmp_path / "runs"), title="t", intro=""))
    looks: dict[str, set[tuple[str | None, str | None]]] = {}
    method = ""
    for tag, attrs in page.tags:
        method = attrs.get("data-method") or attrs.get("data-toggle") or method
        if tag == "use":
            looks.setdefault(method, set()).add((attrs["style"], attrs["href"]))
    assert len(looks) == 10
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == 10


def test_a_failed_write_leaves_the_old_page(
    runs: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("disk")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        write_page(runs, out, title="t", intro="")
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*page*")] + [p.name for p in tmp_path.glob(".*")] == ["page.html"]


# -- distances -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_distances_are_read_and_optional(folder: Callable[..., Path]) -> None:
    from runs_on_disk import alignment

    without = read_runs(folder("without", results()))
    assert distances(without).empty
    run = read_runs(folder("with", results() | {"alignment": alignment()}))
    assert list(distances(run)["step"]) == [0] * 3 + [3] * 3
    unmeasured = alignment() | {"last": None}
    routed = read_runs(folder("routed", results() | {"alignment": unmeasured}))
    assert list(distances(routed)["step"]) == [0] * 3
    source = build_page(routed, title="t", intro="")
    assert "Images and texts" not in source
    assert "Images and texts" in build_page(pd.concat([run, without]), title="t", intro="")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("bins", 0, "alignment.bins: expected at least 1, found 0"),
        ("range", [1, 0], "alignment.range: expected"),
        ("last", ..., "missing key 'alignment.last'"),
        ("last.2", ..., "alignment.last: wrong size: 2 objects for 3 tasks"),
        ("last.1.counts.0", 11, r"alignment.last\[1\].counts: 41 images, but count says 40"),
        ("last.1.counts.0", -1, r"alignment.last\[1\].counts\[0\]: expected a number of images"),
        ("zero_shot.0.first_bin", 498, r"first_bin: 4 bins from bin 498 on do not fit into 500"),
        ("zero_shot.0.quantiles", [5, 4, 3, 2, 1], "quantiles: expected 5 rising numbers"),
        ("zero_shot.0.quantiles", [0, 0, 0, 0, 1e300], r"quantiles\[4\]: expected a distance up to"),
        ("range", [0, 1e300], "range: expected"),
        ("zero_shot.0.prototypes.1", "near", r"prototypes\[1\]: expected a distance or null, found 'near'"),
        ("zero_shot.0.mean", None, "mean: expected a finite number, found null"),
    ],
)
def test_bad_distances_name_the_key(folder: Callable[..., Path], path: str, value: Any, words: str) -> None:
    from runs_on_disk import alignment

    bad = folder("bad", results() | {"alignment": change(alignment(), path, value)})
    with pytest.raises(ReportError, match=words):
        read_runs(bad)


def test_a_long_sequence_has_one_curve_no_matrix_and_no_distances(tmp_path: Path) -> None:
    from runs_on_disk import alignment

    tasks = [f"task-{number}" for number in range(30)]
    (tmp_path / "run").mkdir()
    content = results(tasks=tasks) | {"alignment": alignment(len(tasks))}
    for setting in report.SETTINGS:
        content[setting]["matrix"] = [[50.0] * 30] * 30
    (tmp_path / "run" / "results.json").write_text(json.dumps(content))
    page = report.build_page(report.read_runs(tmp_path), title="long", intro="")
    assert "mean of all tasks" in page
    assert 'data-name="task-7"' not in page
    assert 'id="matrix"' not in page
    assert 'id="distances"' not in page
