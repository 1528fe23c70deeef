"""Figures: which there are, what their captions say, that nothing but the runs decides their bytes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from run_results import TASKS, results
from runs_on_disk import alignment, draw_coarsely, several, write_runs
from tasso.report import ReportError, build_page, write_figures
from tasso.report.colours import mark_outlines
from tasso.report.figures import draw, figures, style
from tasso.report.figures.draw import legend_columns
from tasso.report.figures.svg import panels
from tasso.report.figures.write import compared_pair
from tasso.report.frame import COLUMNS, by_tasks, compare
from tasso.report.looks import MARKERS, looks


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_coarsely(monkeypatch)


@pytest.mark.slow
def test_figures_are_written_twice_the_same(tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs", several(seeds=2)[1:3])
    first, second = (write_figures(runs, tmp_path / name) for name in ("one", "two"))
    names = sorted({path.stem for path in first})
    assert names == sorted({
        "captions", "boxes-classes-atlas-nano-s1", "distances-images-atlas-nano-s1",
        *(f"{name}-{setting}" for setting in ("mtil", "mcil") for name in (
            "curves-atlas-nano-s1", "trade-off-atlas-nano-s1", "matrix-001-snd-s1-1", "matrix-002-tasso-s1-1")),
    })  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(path.name for path in first)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
        start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".md": b"# Figures"}[one.suffix]
        assert one.read_bytes().startswith(start)
    pdf = (tmp_path / "one" / "trade-off-atlas-nano-s1-mtil.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    captions = (tmp_path / "one" / "captions.md").read_text()
    for name in names[:-1]:
        assert name == "captions" or f"**{name}**: " in captions
    assert "TASSO (1 run) and SnD (1 run)" in captions
    assert "from 2 runs" in captions


@pytest.mark.slow
def test_only_what_the_runs_have_is_drawn(tmp_path: Path) -> None:
    contents = [results("A", rows=1), results("B", rows=0), results("one", tasks=TASKS[:1], benchmark="alone")]
    contents[2]["mtil"]["metrics"]["forgetting"] = contents[2]["mcil"]["metrics"]["forgetting"] = None
    runs = write_runs(tmp_path / "runs", contents)
    names = [figure.name for figure in figures(runs)]
    assert not [name for name in names if name.startswith(("boxes", "distances", "trade-off"))]
    (caption, _) = [figure.caption for figure in figures(runs) if figure.name.startswith("matrix-001")]
    assert "unfinished: 1 of 3 tasks learned" in caption
    assert len(write_figures(runs, tmp_path / "figures")) == 3 * len(names) + 1
    with pytest.raises(ReportError, match="at least one run"):
        list(figures(pd.DataFrame(columns=COLUMNS)))


def test_tasso_meets_the_best_of_the_others(tmp_path: Path) -> None:
    contents = several(seeds=1)
    worst = results("worst", 1, shift=30.0) | {"method": "tasso", "alignment": alignment()}
    for number, expected in ((3, ["TASSO", "SnD"]), (2, ["SnD", "fine-tuning"])):
        (comparison,) = compare(write_runs(tmp_path / f"{number}", contents[:number]))
        assert compared_pair(comparison) == expected
    (comparison,) = compare(write_runs(tmp_path / "worst", [*contents[:2], worst]))
    assert compared_pair(comparison) == ["worst", "SnD"], "TASSO is shown though it is not among the best two"


def test_the_page_lists_the_methods_that_a_section_draws(tmp_path: Path) -> None:
    page = build_page(write_runs(tmp_path / "runs", several(seeds=1)[:3]), title="t", intro="")
    listed = {}
    for name in ("curves", "distances"):
        section = page.split(f'<h2 id="{name}">')[1].split("</section>")[0]
        keys = section.split('<ul class="keys">')[1].split("</ul>")[0]
        listed[name] = re.findall(r"</svg>([^<]+)</li>", keys)
        assert ("Drawn are two of the methods" in section) == (name == "distances")
    assert listed == {
        "curves": ["fine-tuning", "SnD", "TASSO", "Zero-shot"], "distances": ["SnD", "TASSO", "Zero-shot"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lengths", "columns"), [([5, 3, 9], 3), ([5, 3, 11, 3, 5, 4, 39, 24, 9], 5), ([90, 90], 1), ([150], 1)]
)
def test_legends_take_the_width_there_is(lengths: list[int], columns: int) -> None:
    assert legend_columns(lengths) == columns


def test_marks_of_legends_are_those_of_figures() -> None:
    outlines = mark_outlines()
    assert len(set(outlines.values())) == len(MARKERS)
    assert all(outline.startswith("M") and outline.endswith("z") for outline in outlines.values())
    numbers = [abs(float(number)) for outline in outlines.values() for number in re.findall(r"-?\d+\.\d+", outline)]
    assert max(numbers) == 1.0


def test_the_page_shows_the_same_figures(tmp_path: Path) -> None:
    """As SVG without clips, fonts and names, in colours that the page can change, with its values in titles."""
    (comparison,) = compare(write_runs(tmp_path / "runs", several(seeds=2)))
    (orders,) = by_tasks([comparison])
    found = looks(comparison.frame)
    styles: dict[str, str] = {}
    with style.drawing(page=True):
        shown = panels(draw.curves(comparison, "mtil", found), styles)
        assert shown == panels(draw.curves(comparison, "mtil", found), styles)
        (forgetting, degradation) = panels(draw.trade_off(orders, "mtil", found), styles)
    assert len(shown) == 1 + len(TASKS)
    for panel in (*shown, forgetting, degradation):
        assert not re.search(r"url\(|https?:|font-family| id=", panel)
        for look in found.values():
            assert f'data-method="method-{look.number}"' in panel
            own = [name for rules, name in styles.items() if f"var({look.variable})" in rules]
            assert any(f'class="{name}"' in panel for name in own)
    assert not [rules for rules in styles if "#" in rules]
    named = set(re.findall(r"var\((--c\w+)\)", " ".join(styles)))
    assert named == {look.variable for look in found.values()}, "no colour that the page does not have"
    assert "SnD\naccuracy " in forgetting
    assert "zero-shot degradation" in degradation
    assert 'data-name="textures"' in shown[2]


def test_scales_show_the_difference(tmp_path: Path) -> None:
    """Each panel of curves has its own scale, but none that makes noise look like a difference."""
    close = [results("A"), results("B", shift=0.1)]
    (comparison,) = compare(write_runs(tmp_path / "runs", close))
    with style.drawing():
        axes = draw.curves(comparison, "mtil", looks(comparison.frame)).axes
    spans = [high - low for low, high in (panel.get_ylim() for panel in axes)]
    assert all(40 < span < 60 for span in spans[1:])
    flat = write_runs(tmp_path / "flat", [results("A", shift=40.0)])
    flat["value"] = flat["value"].where(flat["metric"] != "accuracy", 50.0 + 0.1 * flat["step"])
    (comparison,) = compare(flat)
    with style.drawing():
        axes = draw.curves(comparison, "mtil", looks(flat)).axes
    assert {round(high - low, 6) for low, high in (panel.get_ylim() for panel in axes)} == {draw.LEAST_SPAN}


def test_svg_files_draw_anywhere(tmp_path: Path) -> None:
    """Plain colours, letters as text with a family to fall back on, nothing that only a page of ours knows."""
    (comparison,) = compare(write_runs(tmp_path / "runs", several(seeds=2)))
    found = looks(comparison.frame)
    with style.drawing():
        one = comparison.only([comparison.runs.index[0]]).frame
        for number, figure in enumerate((draw.curves(comparison, "mtil", found), draw.matrix(one, "mtil"))):
            (svg,) = [path for path in style.save(figure, tmp_path, f"{number}") if path.suffix == ".svg"]
            text = svg.read_text()
            ElementTree.fromstring(text)
            assert not re.search(r"var\(|class=|data-|prefers-color-scheme|<script|&quot;", text)
            assert "<text" in text
            assert all("sans-serif" in font for font in re.findall(r'style="(font:[^"]*)"', text))
