"""Figures: which there are, what their captions say, that nothing but the runs decides their bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from run_results import TASKS, results
from runs_on_disk import alignment, draw_coarsely, several, write_runs
from tasso.report import ReportError, write_figures
from tasso.report.colours import MARKERS, colour, mark_outlines
from tasso.report.figures import draw, figures, style
from tasso.report.figures.draw import legend_columns
from tasso.report.figures.svg import panels
from tasso.report.figures.write import compared_pair
from tasso.report.frame import COLUMNS, compare


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_coarsely(monkeypatch)


@pytest.mark.slow
def test_figures_are_written_twice_the_same(tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs", several(seeds=2)[1:3])
    first, second = (write_figures(runs, tmp_path / name) for name in ("one", "two"))
    names = sorted({path.stem for path in first})
    assert names == sorted({
        "captions", "boxes-classes-atlas-nano-s1", "boxes-images-atlas-nano-s1", "distances-classes-atlas-nano-s1",
        "distances-images-atlas-nano-s1", "curves-atlas-nano-s1-mtil", "curves-atlas-nano-s1-mcil",
        "domains-atlas-nano-s1-mtil", "domains-atlas-nano-s1-mcil", "trade-off-atlas-nano-s1",
        "matrix-001-snd-s1-1", "matrix-002-tasso-s1-1",
    })  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(path.name for path in first)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
        start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".md": b"# Figures"}[one.suffix]
        assert one.read_bytes().startswith(start)
    pdf = (tmp_path / "one" / "trade-off-atlas-nano-s1.pdf").read_bytes()
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
    domains = [name for name in names if name.startswith("domains")]
    assert domains == ["domains-alone-nano-s1-mtil", "domains-alone-nano-s1-mcil"]
    (caption,) = [figure.caption for figure in figures(runs) if figure.name.startswith("matrix-001")]
    assert "unfinished: 1 of 3 tasks learned" in caption
    assert len(write_figures(runs, tmp_path / "figures")) == 2 * len(names) + 1
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


@pytest.mark.parametrize(
    ("lengths", "columns"), [([5, 3, 9], 3), ([5, 3, 11, 3, 5, 4, 39, 24, 9], 5), ([90, 90], 1), ([150], 1)]
)
def test_legends_take_the_width_there_is(lengths: list[int], columns: int) -> None:
    assert legend_columns(lengths) == columns


def test_marks_of_legends_are_those_of_figures() -> None:
    outlines = mark_outlines()
    assert len(set(outlines)) == len(MARKERS)
    assert all(outline.startswith("M") and outline.endswith("z") for outline in outlines)
    numbers = [abs(float(number)) for outline in outlines for number in re.findall(r"-?\d+\.\d+", outline)]
    assert max(numbers) == 1.0


def test_the_page_shows_the_same_figures(tmp_path: Path) -> None:
    """As SVG without clips, fonts and names, in colours that the page can change, with its values in titles."""
    (comparison,) = compare(write_runs(tmp_path / "runs", several(seeds=2)))
    methods = {label: number for number, label in enumerate(comparison.labels)}
    styles: dict[str, str] = {}
    with style.drawing(page=True):
        shown = panels(draw.curves(comparison, "mtil", methods), styles)
        assert shown == panels(draw.curves(comparison, "mtil", methods), styles)
        (mtil, mcil) = panels(draw.trade_off(comparison, methods) or pytest.fail("nothing drawn"), styles)
    assert len(shown) == len(TASKS)
    for panel in (*shown, mtil, mcil):
        assert not re.search(r"url\(|https?:|font-family| id=", panel)
        for number in range(3):
            assert f'data-method="method-{number}"' in panel
            own = [name for rules, name in styles.items() if f"var(--m{number})" in rules]
            assert any(f'class="{name}"' in panel for name in own)
    assert not [rules for rules in styles if "#" in rules or colour(0) in rules]
    assert "SnD\naccuracy " in mtil
    assert 'data-name="textures"' in shown[1]
