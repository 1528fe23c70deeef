"""The site of docs/ builds without warnings, needs no network and can be opened from disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from method_runs import LEARNING
from tasso.methods.describe import cost_in_words, describe

pytest.importorskip("mkdocs", reason="no mkdocs here: pip install 'tasso[docs]'")
pytest.importorskip("material", reason="no mkdocs-material here: pip install 'tasso[docs]'")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from mkdocs.exceptions import PluginError

import draw_method_figures
import draw_situations
from site_of_docs import hooks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
DOCS = ROOT / "docs"


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """mkdocs in a process of its own, as in `make docs`."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(out),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def small_site(folder: Path, pages: list[str]) -> Path:
    """The site's settings for other pages, without plugins."""
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "hooks": [str(Path(hooks.__file__))],
        "nav": pages, "plugins": [], "extra_css": [], "extra": {"polyfills": []},
    }  # fmt: skip
    (folder / "mkdocs.yml").write_text(json.dumps(settings))
    return folder / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_built_and_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert pages | {"contributing.html", "changelog.html", "measured.html", "nano.html"} <= built
    for page in built:
        text = (site / page).read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="([^"]+)"', text)
        assert not [address for address in fetched if re.match(r"(https?:)?//", address)], page
        assert "arithmatex" not in text, f"{page}: a formula was not converted"
        # Lists and tables that were parsed as text. Nested lists need four spaces.
        assert not re.search(r"<p>(?:(?!</p>).)*?\n\s*(?:[-*] |\d+\. |\| )", text, re.S), page


def test_all_pages_are_in_the_menu(site: Path) -> None:
    menu = set(re.findall(r'href="([\w/.-]+\.html)" class="md-nav__link"', (site / "index.html").read_text()))
    written = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    assert written <= menu | {"index.html"}, sorted(written - menu)


@pytest.mark.parametrize(
    ("page", "complaints"),
    [
        (
            "[x](index.md#nowhere) [y](nowhere.md)",
            ["there is no such anchor", "not found among documentation files"],
        ),
        ("$$\\nonsense{x}$$", ["no MathML for \\nonsense"]),
    ],
)
def test_broken_links_and_formulas_end_the_build(page: str, complaints: list[str], tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{page}\n")
    done = build(small_site(tmp_path, ["index.md"]), tmp_path / "out")
    assert done.returncode != 0
    assert not [complaint for complaint in complaints if complaint not in done.stderr], done.stderr


def test_reports_are_built_from_the_results(site: Path) -> None:
    """A report has index.md and index.html, which would be one file in the site."""
    for name in ("mtil-mini", "atlas"):
        report = site / "results" / name
        written = (report / "index.html").read_text(encoding="utf-8")
        assert 'href="page.html"' in written
        assert "The numbers behind it" in written
        assert 'class="claims"' in (report / "page.html").read_text(encoding="utf-8")
        for file in ("verdict.html", "verdict.json", "tables/main-mtil-accuracy.csv", "figures/captions.html"):
            assert (report / file).is_file(), file
        links = set(re.findall(r'(?:href|src)="((?:tables|figures)/[^"]+)"', written))
        assert len(links) > 30
        assert not [link for link in links if not (report / link).is_file()]
        assert f'href="{name}/index.html"' in (site / "results" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"verdict\.html|results/\w+/index\.html", (site / "index.html").read_text(encoding="utf-8"))


def test_links_of_pages_outside_docs() -> None:
    follow = hooks.with_site_links
    assert follow("[a](docs/design.md#words)", ROOT / "CONTRIBUTING.md", "contributing.md") == "[a](design.md#words)"
    outside = follow(
        "[a](../../README.md), [b](../../results/README.md)", DOCS / "guide" / "running.md", "guide/running.md"
    )
    assert outside == "[a](../index.md), [b](../measured.md)"
    assert follow("[the errors](src/tasso/errors.py)", ROOT / "CONTRIBUTING.md", "contributing.md") == (
        "the errors (`src/tasso/errors.py`)"
    )
    report = hooks.REPORTS / "paper-x" / "index.md"
    assert (
        follow("[a](index.html), [b](tables/x.csv)", report, "results/x/index.md")
        == "[a](page.html), [b](tables/x.csv)"
    )
    same = "[a](options.md#data), [b](https://example.org), [c](#here)"
    assert follow(same, DOCS / "guide" / "running.md", "guide/running.md") == same
    with pytest.raises(PluginError, match="out of the repository"):
        follow("[a](../../../x)", DOCS / "guide" / "running.md", "guide/running.md")


# -- the methods' pages ------------------------------------------------------------------------------------------


def test_figures_are_up_to_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    draw_method_figures.main(["--check"])
    assert set(draw_method_figures.DRAWINGS) == set(LEARNING)
    monkeypatch.setattr(draw_method_figures, "FIGURES", tmp_path)
    with pytest.raises(SystemExit, match="is out of date"):
        draw_method_figures.main(["--check"])


def page_and_section(name: str) -> tuple[str, str]:
    """Where a method is described, and the text: a page of its own, or its section of the baselines' page."""
    own = DOCS / "methods" / f"{name}.md"
    if own.is_file():
        return name, own.read_text(encoding="utf-8")
    sections = re.split(r"^(?=## )", (DOCS / "methods" / "baselines.md").read_text(encoding="utf-8"), flags=re.M)
    [section] = [section for section in sections if f"(figures/{name}.svg)" in section]
    return "baselines", section


def test_drawings_of_situations_are_up_to_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    draw_situations.main(["--check"])
    monkeypatch.setattr(draw_situations, "IMAGES", tmp_path)
    with pytest.raises(SystemExit, match="is out of date"):
        draw_situations.main(["--check"])


@pytest.mark.parametrize("name", LEARNING)
def test_the_description_of_a_method(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))  # cached AlexNet weights change the cost of MoE-Adapters
    page, text = page_and_section(name)
    if page == name:
        headings = ["The loss", "What is trained and stored", "Options", "Cost", "Paper and code", "Run it", "Source"]
        assert re.findall(r"^## (.+)$", text, re.M) == headings
    else:
        parts = re.findall(r"^\*\*\[?([\w ]+)(?:\]\(\S+\))?\.\*\*", text, re.M)
        for part in ("Trained and stored", "Options", "Cost", "Paper and code"):
            assert parts.count(part) == 1, part
    assert re.search(rf"!\[[^\]]{{40,}}\]\(figures/{name}\.svg\)", text), "a figure with alternative text"
    assert re.search(r"^\$\$.+\$\$$", text, re.M)
    assert re.search(rf"^tasso run --benchmark atlas .*--method {name} ", text, re.M)
    options = {field.replace("_", "-") for field in describe(name)["options"]}
    assert {name.removeprefix("no-") for name in re.findall(r"`--method\.([a-z-]+)", text)} <= options
    cost = re.split(r"\n## |\n\*\*Paper", re.split(r"## Cost|\*\*Cost", text)[1])[0]
    counted = cost_in_words(describe(name)["cost"])
    figures = re.findall(r"[\d.,]*\d(?: MiB| M\b)", cost)
    assert figures
    assert not [figure for figure in figures if figure not in counted], counted


# -- in the browser ----------------------------------------------------------------------------------------------


class Reader:
    """Opens the site's files in a browser."""

    def __init__(self, browser: Any, site: Path) -> None:
        self.browser, self.site = browser, site

    def open(self, page: str) -> None:
        self.browser.get((self.site / page).as_uri())

    def run(self, script: str) -> Any:
        return self.browser.execute_script(script)


@pytest.fixture
def reader(browser: Any, site: Path) -> Iterator[Reader]:
    yield Reader(browser, site)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


LOOKED_AT = ["index.html", "methods/tasso.html", "methods/baselines.html", "guide/python.html", "measured.html"]


@pytest.mark.parametrize("page", LOOKED_AT)
def test_pages_load_only_files_and_log_no_errors(reader: Reader, page: str) -> None:
    reader.browser.execute_cdp_cmd("Network.enable", {})
    reader.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*", "ws://*", "wss://*"]})
    try:
        reader.open(page)
        requests = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        assert [address for address in reader.run(requests) if not address.startswith("file:")] == []
        assert reader.browser.get_log("browser") == []
        # A request to another host would be listed.
        reader.browser.execute_async_script(
            "const image = new Image(); image.onerror = () => arguments[0](); image.src = 'https://host.invalid/x'"
        )
        assert reader.run(requests)[-1] == "https://host.invalid/x"
    finally:
        reader.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


def test_formulas_are_rendered(reader: Reader) -> None:
    for name in sorted({page_and_section(method)[0] for method in LEARNING}):
        reader.open(f"methods/{name}.html")
        heights = reader.run(
            "const formulas = [...document.querySelectorAll('.formula math')];"
            "return formulas.map((formula) => formula.getBoundingClientRect().height)"
        )
        assert heights, name
        assert min(heights) > 10, name
        assert "$" not in reader.run("return document.querySelector('article').innerText"), name
    reader.open("methods/tasso.html")
    # A rendered fraction is higher than a line of text.
    assert reader.run("return document.querySelector('mfrac').getBoundingClientRect().height") > 25


def test_light_and_dark(reader: Reader) -> None:
    looks = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        reader.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        reader.open("methods/baselines.html")
        looks[scheme] = reader.run(
            "const colour = (selector, what) => getComputedStyle(document.querySelector(selector))[what];"
            "return [colour('body', 'backgroundColor'), colour('article', 'color'),"
            " colour('figure text[font-weight]', 'fill')]"
        )
        reader.run("localStorage.clear()")
    light, dark = ([_brightness(colour) for colour in looks[scheme]] for scheme in ("light", "dark"))
    assert light[0] > 200 > 100 > max(light[1:])
    assert dark[0] < 60 < 150 < min(dark[1:])


def _brightness(colour: str) -> float:
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3


def test_search_without_a_server(reader: Reader) -> None:
    reader.open("methods/baselines.html")
    box = reader.browser.find_element("css selector", ".md-search__input")
    box.click()
    box.send_keys("herding")
    found = reader.browser.execute_async_script(
        "const list = document.querySelector('.md-search-result'), done = arguments[0];"
        "const look = () => { const found = [...list.querySelectorAll('a')].map((a) => a.getAttribute('href'));"
        "  if (found.length) done(found); };"
        "new MutationObserver(look).observe(list, {childList: true, subtree: true}); look()"
    )
    assert any("methods/baselines.html" in address for address in found)
    index = json.loads((reader.site / "search" / "search_index.json").read_text())
    assert len({entry["location"].partition("#")[0] for entry in index["docs"]}) > 20
