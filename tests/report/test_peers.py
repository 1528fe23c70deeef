"""Published numbers: true to the facts, with source and flag, and never among ours."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from run_results import results
from tasso.cli.data_fingerprint import known_fingerprint
from tasso.data import BENCHMARKS
from tasso.report import read_run, read_runs, report_tables, summary_table, to_latex, write_page
from tasso.report.peers import WHOSE, _rows, peer_rows, zero_shot_of

TASKS = list(BENCHMARKS["mtil-11"].tasks)


def test_rows_name_known_benchmarks_tasks_and_sources() -> None:
    for row in _rows():
        benchmark = BENCHMARKS[row.benchmark]
        assert row.order in ("S1", *benchmark.sequences)
        assert row.source
        assert ("memory" in row.source) != row.checked, "what was not checked says so"
        if row.setting == "seen" and "Zero-shot" not in row.method:
            assert "random training crop" in row.source, "a test that others did not make"
        if row.method == "Zero-shot" and "zero_shot" in row.means:
            assert row.means["average"] == row.means["last"] == row.means["zero_shot"]
        for metric, values in row.tasks.items():
            assert set(values) <= set(benchmark.tasks)
            assert fmean(values.values()) == pytest.approx(row.means[metric], abs=0.06), (row.method, metric)


def test_checked_rows_are_those_of_the_authors_matrices() -> None:
    golden = json.loads((Path(__file__).parents[1] / "golden" / "zscl_mtil11.json").read_text())
    found = {row.method: row.means for row in peer_rows("mtil-11") if row.order == "I" and row.checked}
    for method, known in golden["methods"].items():
        assert found[method] == known["published"], method
    zero_shot = zero_shot_of("mtil-11", "ViT-B-16-quickgelu")
    assert zero_shot is not None
    assert list(zero_shot.tasks["zero_shot"].values()) == golden["zero_shot"]


@pytest.mark.parametrize(("order", "printed"), [("I", [69.4, 65.3, 65.3]), ("II", [65.4, 65.3, 65.3])])
def test_the_zero_shot_line_is_that_of_the_peers(order: str, printed: list[float], tmp_path: Path) -> None:
    """The pretrained model's transfer, average and last, from its accuracy on each task."""
    peer = zero_shot_of("mtil-11", "ViT-B-16-quickgelu")
    assert peer is not None
    tasks = list(BENCHMARKS["mtil-11"].sequences[order])
    content = results(tasks=tasks, benchmark="mtil-11", sequence=order)
    content["mtil"]["zero_shot"] = [peer.tasks["zero_shot"][task] for task in tasks]
    (tmp_path / "results.json").write_text(json.dumps(content))
    line = summary_table(read_run(tmp_path), "mtil").rows[0].cells
    assert [cell.value for cell in line[-3:]] == pytest.approx(printed, abs=0.051)


def test_published_numbers_have_tables_of_their_own(tmp_path: Path) -> None:
    for number, benchmark in enumerate(("mtil-11", "atlas")):
        folder = tmp_path / "runs" / str(number)
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(results(benchmark=benchmark)))
    frame = read_runs(tmp_path / "runs")
    tables = report_tables(frame)
    assert [name for name in tables if "published" in name] == ["published-mtil-11"]
    table = tables.pop("published-mtil-11")
    assert WHOSE in table.title
    assert "68.1" in to_latex(table)
    assert all("GIFT" not in to_latex(ours) for ours in tables.values())
    assert not any(cell.best for row in table.rows for cell in row.cells)
    page = write_page(frame, tmp_path / "page.html", title="t", intro="").read_text()
    assert f"Published by others ({WHOSE})" in page


def test_zero_shot_rows_of_the_peers_are_fingerprints() -> None:
    model = "ViT-B-16-quickgelu"
    mtil, tail, steps = (known_fingerprint(name, model) for name in ("mtil-11", "x-tail", "cifar100-10"))
    assert mtil is not None
    assert tail is not None
    assert steps is not None
    assert (mtil.mtil["sun397"], mtil.mcil) == (65.2, {})
    assert (tail.mcil["sun397"], tail.mtil) == (63.7, {})
    assert steps.mtil == {"cifar100": 66.72}
    assert known_fingerprint("mtil-11", "nano") is None
