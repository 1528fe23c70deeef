"""Figures: which there are, what their captions say, that nothing but the runs decides their bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tasso.report.distances import measured
from tasso.report.groups import compare

from run_results import TASKS, results
from runs_on_disk import alignment, draw_coarsely, several, write_runs
from tasso.report import ReportError, write_figures
from tasso.report.colours import MARKS
from tasso.report.figures import figures
from tasso.report.figures.draw import legend_columns
from tasso.report.figures.style import MARKERS
from tasso.report.figures.write import rivals


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_coarsely(monkeypatch)


pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'tasso[report]'")


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
        list(figures([]))


def test_tasso_meets_the_best_of_the_others(tmp_path: Path) -> None:
    contents = several(seeds=1)
    worst = results("worst", 1, shift=30.0) | {"method": "tasso", "alignment": alignment()}
    for number, expected in ((3, ["TASSO", "SnD"]), (2, ["SnD", "fine-tuning"])):
        (comparison,) = compare(write_runs(tmp_path / f"{number}", contents[:number]))
        found = measured(comparison)
        assert found is not None
        assert rivals(comparison, found) == expected
    (comparison,) = compare(write_runs(tmp_path / "worst", [*contents[:2], worst]))
    found = measured(comparison)
    assert found is not None
    assert rivals(comparison, found) == ["worst", "SnD"], "TASSO is shown though it is not among the best two"


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write_runs(tmp_path / "runs", several(seeds=1))
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ReportError, match=r"pip install 'matplotlib"):
        write_figures(runs, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("lengths", "columns"), [([5, 3, 9], 3), ([5, 3, 11, 3, 5, 4, 39, 24, 9], 5), ([90, 90], 1), ([150], 1)]
)
def test_legends_take_the_width_there_is(lengths: list[int], columns: int) -> None:
    assert legend_columns(lengths) == columns


def test_marks_are_those_of_the_page() -> None:
    assert len(MARKERS) == len(MARKS)
