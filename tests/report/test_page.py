"""The page in a real Chromium: it loads quietly, filters hide and show, keys work, files are right, light and dark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_report import GALLERY

from run_results import results
from runs_on_disk import alignment, several, write_runs
from tasso.data import BENCHMARKS
from tasso.data.sequences import order
from tasso.experiments.plans import PLANS, SND, TASSO, Setup
from tasso.report import summary_table, to_csv, to_latex, write_page

pytest.importorskip("selenium.webdriver", reason="no selenium here: pip install 'tasso[dev]'")
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.slow
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(18, 22, 28)"


class Reader:
    """Someone who looks at a page."""

    def __init__(self, browser: Any, page: Path) -> None:
        self.browser = browser
        browser.get(page.as_uri())

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements("css selector", selector))

    def shown(self, selector: str) -> int:
        """How many of these can be seen."""
        # Neither alone is enough: what is folded away has a place, and hidden parts of drawings count as visible.
        seen = "(node) => node.checkVisibility() && node.getClientRects().length"
        return int(self.run(f"return [...document.querySelectorAll(arguments[0])].filter({seen}).length", selector))

    def run(self, script: str, *words: Any) -> Any:
        return self.browser.execute_script(script, *words)

    def come_to(self, selector: str) -> None:
        """Scroll there and wait until the page has taken note."""
        self.browser.execute_async_script(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'});"
            "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
            self.find(selector),
        )

    def point_at(self, selector: str) -> None:
        """Move the pointer to the middle of it. Not move_to_element: it would scroll once more, which ends a tip."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        self.come_to(selector)
        box = self.run(
            "const box = arguments[0].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]",
            self.find(selector),
        )
        moves = ActionBuilder(self.browser)
        moves.pointer_action.move_to_location(*map(round, box))
        moves.perform()

    def open_everything(self) -> None:
        self.run("for (const fold of document.querySelectorAll('details')) fold.open = true")

    def button(self, name: str) -> Any:
        found = next(b for b in self.all("#filters button") if b.text == name)
        self.run("arguments[0].scrollIntoView({block: 'nearest', inline: 'nearest'})", found)  # the bar may be long
        return found

    @property
    def status(self) -> str:
        return str(self.find("#filter-status").get_attribute("textContent"))

    @property
    def tip(self) -> list[str]:
        return str(self.find("#tip").text).splitlines()

    @property
    def focused(self) -> Any:
        return self.browser.switch_to.active_element

    def press(self, *keys: str) -> None:
        self.focused.send_keys(*keys)

    def complaints(self) -> list[Any]:
        return list(self.browser.get_log("browser"))


def many() -> list[dict[str, Any]]:
    """Three methods in three orders with two seeds, and one run elsewhere."""
    elsewhere = results("LwF", 1, benchmark="globe", shift=8.0)
    return [*several(seeds=2, orders=3), elsewhere, results("SnD", 9, rows=2, sequence="S1")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return write_runs(tmp_path_factory.mktemp("runs"), many())


@pytest.fixture(scope="module")
def page(runs: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(runs, tmp_path_factory.mktemp("page") / "x.html", title="Report", intro="Text.", gallery=GALLERY)


@pytest.fixture
def reader(browser: Any, page: Path) -> Iterator[Reader]:
    found = Reader(browser, page)
    yield found
    assert not found.complaints(), "the console must stay empty"


def test_filters_hide_and_show(reader: Reader) -> None:
    everything = reader.status
    assert everything == "Showing 4 of 4 methods, 20 of 20 runs, MTIL and MCIL."
    reader.open_everything()
    rows = "tr[data-method=method-2]"  # TASSO
    before = reader.shown(rows)
    assert before >= 6
    reader.button("TASSO").click()
    assert reader.status == "Showing 3 of 4 methods, 14 of 20 runs, MTIL and MCIL."
    for kind in ("tr", "g", ".map", "li"):
        assert reader.shown(f"{kind}[data-method=method-2]") == 0
    assert reader.shown("tr[data-method=method-1]") > 0
    reader.button("TASSO").click()
    assert reader.shown(rows) == before

    reader.button("MCIL").click()
    assert reader.shown("[data-setting=mtil]") == 0
    assert reader.shown("[data-setting=mcil]") > 0
    reader.button("Both").click()

    reader.find("#choose-order").send_keys("S2")
    assert reader.status == "Showing 4 of 4 methods, 6 of 20 runs, MTIL and MCIL."
    places = [h.text.partition("\n")[0] for h in reader.all("#curves ~ details h3") if h.is_displayed()]
    assert places
    assert all("order S2" in place for place in places)
    assert reader.shown("#summary ~ * tr[data-order=order-0]") == 0

    reader.find("#choose-benchmark").send_keys("globe")
    assert reader.status.startswith("Showing 4 of 4 methods, 0 of 20 runs")
    assert reader.find("#nothing").is_displayed()
    reader.find("#reset").click()
    assert reader.status == everything
    assert not reader.find("#nothing").is_displayed()
    assert reader.focused.text == "Both", "the focus is not lost with the button that had it"

    reader.button("None").click()
    assert reader.shown("tbody tr[data-method]") == 0
    reader.button("All").click()
    assert reader.status == everything


def test_everything_can_be_done_with_the_keyboard(reader: Reader) -> None:
    reader.find("body").send_keys(Keys.TAB)
    assert reader.focused.text == "Skip to the results"
    assert reader.focused.rect["y"] >= 0, "what has the focus can be seen"
    reader.press(Keys.ENTER)
    assert reader.run("return document.activeElement.id") == "results"

    toggle = reader.button("SnD")
    reader.run("arguments[0].focus()", toggle)
    reader.press(Keys.SPACE)
    assert toggle.get_attribute("aria-pressed") == "false"
    assert reader.status.startswith("Showing 3 of 4 methods")
    outline = reader.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    reader.press(Keys.SPACE)

    # A matrix has one tab stop; arrows lead from cell to cell.
    reader.open_everything()
    stops = "return [...document.querySelectorAll('svg.heat')].map(t => t.querySelectorAll('[tabindex=\"0\"]').length)"
    assert set(reader.run(stops)) == {1}
    reader.run("document.querySelector('svg.heat .cell').focus()")
    assert reader.tip == ["aircraft, before any task", "30.00 %"]
    reader.press(Keys.ARROW_DOWN)
    first = reader.tip
    assert first[0] == "aircraft, after 1. aircraft"
    assert first[2].startswith("+")
    assert first[2].endswith("against zero-shot")
    reader.press(Keys.ARROW_RIGHT)
    assert reader.tip[0] == "textures, after 1. aircraft"
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert reader.tip[0] == "mean, after 1. aircraft", "the row ends here"
    reader.press(Keys.ESCAPE)
    assert not reader.find("#tip").is_displayed()

    # A curve shows one step at a time and says it.
    reader.run("document.querySelector('svg.steps').focus()")
    reader.press(Keys.ARROW_LEFT)
    assert reader.tip[0] == "mean of all tasks, after 2 of 3 tasks (percent)"
    assert [line.split("  ")[-1] for line in reader.tip[1:]] == ["TASSO", "SnD", "fine-tuning", "Zero-shot"]
    assert "mean of all tasks, after 2 of 3 tasks" in reader.find("#tip-said").get_attribute("textContent")
    reader.button("TASSO").click()
    reader.run("document.querySelector('svg.steps').focus()")
    reader.press(Keys.ARROW_RIGHT)
    assert not [line for line in reader.tip if "TASSO" in line], "what is hidden is not told"


def test_values_under_the_pointer(reader: Reader) -> None:
    reader.open_everything()
    for selector, words in {
        "svg.steps": "mean of all tasks, ",
        ".scatter .dot[data-method=method-2]": "TASSO",
        "svg.shapes-of": "aircraft, mean distance",
        ".boxes .dot": "TASSO on aircraft",
        ".heat .cell.learned": "aircraft, after 1. aircraft",
    }.items():
        reader.point_at(selector)
        assert reader.tip, selector
        assert reader.tip[0].startswith(words), selector
        box = reader.find("#tip").rect
        assert 0 <= box["x"] <= 1280 - box["width"]


def test_downloads(reader: Reader, runs: pd.DataFrame, browser: Any, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    reader.open_everything()
    table = summary_table(runs, "mcil")
    expected = {"summary-mcil.csv": to_csv(table), "summary-mcil.tex": to_latex(table)}
    for kind in ("csv", "tex"):
        reader.run("arguments[0].click()", reader.find(f"[data-save=summary-mcil][data-kind={kind}]"))
    wait_for(lambda: set(expected) <= {path.name for path in tmp_path.iterdir()})
    for name, text in expected.items():
        wait_for(lambda name=name, text=text: (tmp_path / name).read_text(encoding="utf-8") == text)
    buttons = reader.all("[data-save]")
    files = json.loads(reader.find("#files").get_attribute("textContent"))
    assert len(buttons) == 2 * len(files)
    assert all(button.get_attribute("aria-label").startswith("Download as ") for button in buttons)


def wait_for(happened: Callable[[], bool], seconds: float = 30) -> None:
    """Another process writes; we look until it has."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_light_dark_wide_and_narrow(reader: Reader, browser: Any, scheme: str, width: int) -> None:
    try:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        reader.open_everything()
        background = reader.run("return getComputedStyle(document.body).backgroundColor")
        assert background == {"light": LIGHT, "dark": DARK}[scheme]
        sticking_out = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert reader.run(sticking_out) == 0
        colours = reader.run("return [...document.querySelectorAll('.key .mark')].map(n => getComputedStyle(n).fill)")
        assert len(set(colours)) == 4
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_screen_reader_finds_its_way(reader: Reader) -> None:
    landmarks = {role: reader.shown(role) for role in ("header", "nav", "main", "footer")}
    assert landmarks == {"header": 1, "nav": 1, "main": 1, "footer": 1}
    levels = reader.run("return [...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    bare = """
    const bad = [];
    const all = (selector) => [...document.querySelectorAll(selector)];
    for (const t of all("table")) if (!t.caption || !t.caption.textContent.trim()) bad.push("caption");
    for (const th of all("th")) if (!th.scope) bad.push(th.textContent);
    for (const n of all("button, select, [role=region], [role=group], [role=img], section, nav")) {
      const label = n.getAttribute("aria-label") || n.textContent.trim() || n.getAttribute("aria-labelledby");
      if (!label) bad.push(n.outerHTML.slice(0, 80));
    }
    for (const s of all("select")) if (!s.ariaLabel) bad.push(s.id);
    const ids = all("[id]").map(n => n.id);
    if (new Set(ids).size !== ids.length) bad.push("an id stands twice");
    return bad;
    """
    assert reader.run(bare) == []
    assert reader.find("#filter-status").get_attribute("aria-live") == "polite"


def test_without_a_script_everything_is_there_and_nothing_is_offered_in_vain(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        assert not browser.find_element("id", "filters").is_displayed()
        assert not any(button.is_displayed() for button in browser.find_elements("css selector", "[data-save]"))
        assert browser.find_element("css selector", "table.numbers").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_many_runs_stay_readable(browser: Any, tmp_path: Path) -> None:
    """Summary tables come first; what belongs to single runs is folded, and the file stays small."""
    tasks = [[f"t{(k + order) % 8}" for k in range(8)] for order in range(8)]
    contents = [
        results(f"method {number}", 1, tasks=tasks[order], sequence=f"S{order + 1}", shift=number)
        for number in range(9)
        for order in range(8)
    ]
    file = write_page(write_runs(tmp_path / "runs", contents), tmp_path / "page.html", title="Many", intro="")
    assert file.stat().st_size < 5_000_000
    reader = Reader(browser, file)
    assert reader.status == "Showing 9 of 9 methods, 72 of 72 runs, MTIL and MCIL."
    captions = [caption.text for caption in reader.all("#results caption") if caption.is_displayed()]
    assert captions == ["atlas, nano, 300 steps per task"]
    assert reader.shown("svg.heat") == 2 * 9, "of the first order"
    assert reader.shown("svg.steps") == 2 * 9
    assert len(reader.all("svg.heat")) == 144
    height = reader.run("return document.documentElement.scrollHeight")
    assert height < 12_000
    assert json.dumps(reader.complaints()) == "[]"


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an evaluation with two methods on S1 and S2, and nothing else."""
    from tasso.experiments.record import make_record
    from tasso.report.paper.evaluation import read_evaluation
    from tasso.report.paper.report import write_evaluation

    folder = tmp_path_factory.mktemp("evaluation")
    setup = Setup({"benchmark": "mtil-mini", "steps": 3}, {}, 256, sequences=("S1", "S2"))
    for row in (TASSO, SND):
        for (sequence, seed), job in PLANS["main"].jobs_of(row, setup).items():
            tasks = order(BENCHMARKS["mtil-mini"].tasks, sequence)
            content = results(row.label, seed, tasks=tasks, benchmark="mtil-mini", sequence=sequence)
            content |= {"method": row.method, "alignment": alignment(len(tasks))}
            (folder / "runs" / job.name).mkdir(parents=True)
            (folder / "runs" / job.name / "results.json").write_text(json.dumps(content))
    write_evaluation(read_evaluation(folder / "runs", make_record(setup)), folder, figures=False)
    return folder


def test_the_papers_page(browser: Any, evaluation: Path, tmp_path: Path) -> None:
    reader = Reader(browser, evaluation / "index.html")
    reader.open_everything()
    claims = reader.shown(".claims > details")
    outcomes = [verdict["outcome"] for verdict in json.loads((evaluation / "verdict.json").read_text())["verdicts"]]
    assert 0 < claims == len(outcomes) - outcomes.count("not tested on this benchmark") < len(outcomes)
    assert "Not tested on this benchmark: " in reader.run("return document.body.innerText"), "a sentence, no lines"
    assert reader.run(
        "return [...document.querySelectorAll('.claims summary')].every(line => line.firstChild."
        "getBoundingClientRect().right <= line.lastChild.getBoundingClientRect().left)"
    ), "no outcome covers its claim"
    assert reader.status == "Showing 2 of 2 methods, 4 of 4 runs, MTIL and MCIL."
    about_one = {name: reader.shown(f"[data-setting={name}]") for name in ("mtil", "mcil")}
    reader.button("MTIL").click()
    assert reader.shown("[data-setting=mtil]") == about_one["mtil"] > 0
    assert reader.shown("[data-setting=mcil]") == 0
    assert 0 < reader.shown(".claims > details") < claims
    rows = {name: f"tr[data-method=method-{number}]" for number, name in enumerate(("SnD", "TASSO"))}
    before = {name: reader.shown(selector) for name, selector in rows.items()}
    reader.button("SnD").click()
    assert reader.shown(rows["SnD"]) == 0 < before["SnD"]
    assert reader.shown(rows["TASSO"]) == before["TASSO"] > 0
    # Numbers of the paper stand on a ground of their own, and ours do not.
    ours, theirs = (
        reader.run(f"return getComputedStyle(document.querySelector('.numbers td{kind}')).backgroundColor")
        for kind in (":not(.apart)", ".apart")
    )
    assert ours != theirs
    assert reader.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    reader.run("document.querySelector('[data-save=verdict][data-kind=csv]').click()")
    wait_for(lambda: (tmp_path / "verdict.csv").is_file())
    assert (tmp_path / "verdict.csv").read_text().startswith("Claim,Outcome,")
    assert not reader.complaints()
