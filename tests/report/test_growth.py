"""The plans `growth`: what their tables and figures say of runs with made-up numbers."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runs_on_disk import draw_coarsely
from tasso.cli import main
from tasso.data import BENCHMARKS
from tasso.evaluation.metrics import metrics
from tasso.experiments.paper import make_setup
from tasso.experiments.plans import GROWTH
from tasso.experiments.record import RECORD, Record, write_record
from tasso.report.figures import style
from tasso.report.frame import metrics as metrics_of
from tasso.report.paper.evaluation import Evaluation, read_evaluation
from tasso.report.paper.growth import (
    MEASURES,
    REPLAY,
    growth_figure,
    growth_tables,
    mean_ranks,
    measures,
    write_growth,
)
from tasso.report.reader import ReportError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import growth_page
import keep_results
import results_page

SHORT = [GROWTH[name] for name in ("atlas-classes-8", "atlas-styles", "atlas-50")]
LENGTHS = {"atlas-classes-8": 8, "atlas-styles": 5, "atlas-50": 50}
SEEDS = (1, 2)
EVERY = {"atlas-50": 5}  # tasks between two evaluations


def matrix(size: int, shift: float, every: int) -> list[list[float | None]]:
    """Learning adds 40 points, of which `shift` is lost with each later task."""
    rows = [[60.0 - shift * (i - k) if k <= i else 20.0 - 0.1 * k - 0.01 * shift * i for k in range(size)]
            for i in range(size)]  # fmt: skip
    return [row if (i + 1) % every == 0 or i == size - 1 else [None] * size for i, row in enumerate(rows)]  # type: ignore[list-item]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three plans, in the order of their rows from good to bad; those of the first row are missing."""
    folder = tmp_path_factory.mktemp("growth")
    names = {
        (plan.name, row.label): {("S1", seed): f"{plan.name} {row.method} {seed}" for seed in SEEDS}
        for plan in SHORT
        for row in plan.rows
    }
    for plan in SHORT:
        size, every = LENGTHS[plan.name], EVERY.get(plan.name, 1)
        tasks, start, images = [f"task {k:02}" for k in range(size)], [20.0] * size, [10] * size
        for place, row in enumerate(plan.rows[1:]):
            for (_, seed), name in names[plan.name, row.label].items():
                found = matrix(size, 0.1 * (1 + place) + 0.01 * seed, every)
                part: dict[str, Any] = {"zero_shot": start, "matrix": found, "metrics": metrics(start, found)}
                seen = {**part, "images": images, "zero_shot_steps": start, "metrics": metrics(start, found, images)}
                (folder / name).mkdir()
                content = {
                    "version": 1, "finished": True, "method": row.method, "label": row.label, "seed": seed,
                    "model": "nano", "benchmark": plan.name, "sequence": "S1", "tasks": tasks, "mtil": part,
                    "mcil": part, "seen": seen, "per_task": [], "classes": dict.fromkeys(tasks, 4),
                }  # fmt: skip
                (folder / name / "results.json").write_text(json.dumps(content), encoding="utf-8")
    write_record(Record(make_setup({}), names), folder / RECORD)
    return folder


@pytest.fixture(scope="module")
def evaluation(runs: Path) -> Evaluation:
    return read_evaluation(runs)


def test_measures_are_the_metrics_where_every_step_was_evaluated(evaluation: Evaluation) -> None:
    frame = evaluation.labelled(GROWTH["atlas-classes-8"])
    found, seen, mcil = measures(frame), metrics_of(frame, "seen"), metrics_of(frame, "mcil")
    for metric, expected in zip(MEASURES, (
        seen["incremental_average"], seen["incremental_last"], mcil["forgetting"], mcil["zero_shot_degradation"]
    ), strict=True):  # fmt: skip
        assert found[metric.key].tolist() == pytest.approx(expected[found.index].tolist()), metric.name
    thinned = measures(evaluation.labelled(GROWTH["atlas-50"])).iloc[0]
    shift = 0.11
    assert thinned["last"] == pytest.approx(60 - shift * 24.5)
    kept = [4, 9, 14, 19, 24, 29, 34, 39, 44]  # tasks evaluated when just learned, but for the last
    assert thinned["forgetting"] == pytest.approx(sum(shift * (49 - k) for k in kept) / len(kept))


def test_tables_rank_methods_and_leave_out_replay(evaluation: Evaluation) -> None:
    tables = growth_tables([*GROWTH.values()], evaluation)
    assert list(tables) == ["growth", *(plan.name for plan in SHORT)], "plans without runs are left out"
    start, *ranked, gift = tables["growth"].rows
    assert [cell.text for cell in start.cells] == ["Zero-shot", "20.00", "20.00", "20.00", "–"]
    assert [row.cells[0].main for row in ranked][:2] == ["LwF", "iCaRL"]
    assert ranked[-1].cells[0].main == "TASSO, both towers"
    assert [row.cells[-1].main for row in ranked] == ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "7.0"]
    assert all(cell.best for cell in ranked[0].cells[1:-1])
    assert (gift.cells[0].main, gift.cells[-1].value) == ("GIFT", None)
    by_name = {row.cells[0].main: row.cells for row in tables["atlas-styles"].rows}
    assert tables["atlas-styles"].title.endswith(", on atlas-styles, nano, order S1")
    assert all(cell.best for cell in by_name["LwF"][1:4])
    assert REPLAY in tables["atlas-styles"].notes
    long = tables["atlas-50"]
    assert [row.cells[0].main for row in long.rows] == ["Zero-shot", *(row.label for row in SHORT[0].rows[1:])]
    assert "Evaluated after 10 of 50 tasks" in long.notes[-2]
    assert long.notes[-1] == "2 runs missing."
    assert all(cell.value is not None for row in long.rows[1:] for cell in row.cells)


def test_the_mean_rank_is_over_kinds_of_growth() -> None:
    means = pd.DataFrame(
        {"classes-8": [3.0, 2, 1], "classes-12": [3.0, 2, 1], "styles": [1.0, 3, None]}, index=["a", "b", "c"]
    )
    ranks = mean_ranks(means, ["classes", "classes", "styles"])
    assert ranks.drop("c").to_dict() == {"a": 1.5, "b": 1.5}, "1 and 2, 2 and 1"
    assert math.isnan(ranks["c"])


def test_plans_that_were_not_run_are_not_complete(evaluation: Evaluation) -> None:
    assert [plan.name for plan in evaluation.complete_plans()] == ["datasets", "sequences"], "these need no runs"


def test_figures_have_a_panel_per_domain_and_join_what_was_evaluated(evaluation: Evaluation) -> None:
    drawn = {}
    with style.drawing():
        for plan in SHORT:
            drawn[plan.name] = growth_figure(plan, evaluation).draw().axes
    assert {name: len(panels) for name, panels in drawn.items()} == {
        "atlas-classes-8": 1, "atlas-styles": 1 + len(BENCHMARKS["atlas-styles"].tasks), "atlas-50": 1
    }  # fmt: skip
    lines = [line for line in drawn["atlas-50"][0].lines if line.get_marker() not in (None, "None", "")]
    assert len(lines) == len(GROWTH["atlas-50"].rows) - 1
    for line in lines:
        assert list(line.get_xdata()) == list(range(5, 51, 5))
        assert line.get_markevery() == list(range(10)), "marks show what was evaluated"
    assert list(drawn["atlas-50"][0].get_xticks()) == list(range(0, 51, 5))
    assert {tuple(line.get_markevery()) for line in drawn["atlas-classes-8"][0].lines if line.get_markevery()} == {(7,)}


def test_methods_that_replay_are_not_marked(
    evaluation: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIFT is the best of these four, and ranked in no table and in no sentence."""
    rows = ("GIFT", "SnD", "TASSO", "TASSO, both towers")
    names = {key: runs for key, runs in evaluation.record.names.items() if key[1] in rows}
    evaluation = replace(evaluation, record=replace(evaluation.record, names=names))
    pages: list[dict[str, Any]] = []
    monkeypatch.setattr("tasso.report.paper.growth.write_page", lambda *args, **named: pages.append(named))
    write_growth(evaluation, tmp_path, SHORT, figures=False)
    assert pages[0]["sentence"] == "Highest final Seen accuracy in 3 comparisons: SnD in 3."
    for table in growth_tables(SHORT, evaluation).values():
        cells = {row.cells[0].main: row.cells for row in table.rows}
        assert [cells[name][1].best for name in rows] == [False, True, False, False], table.title


def test_the_papers_report_has_no_runs_on_growing_data(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasso.report.paper.growth.write_growth", lambda *args, **kwargs: None)
    main(["paper", "main", "growth", "--runs", str(runs), "--out", str(tmp_path), "--tables-only"])
    assert "\n0 finished runs on atlas." in (tmp_path / "index.md").read_text()


def test_a_plan_of_another_version_is_named(runs: Path, evaluation: Evaluation) -> None:
    names = evaluation.record.names[SHORT[0].name, "LwF"]
    with pytest.raises(ReportError, match=r"plan 'gone', which this version of tasso does not have"):
        read_evaluation(runs, Record(evaluation.record.setup, {("gone", "LwF"): names}))


@pytest.mark.slow
def test_report_of_kept_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_coarsely(monkeypatch)
    main(["paper", "atlas-styles", "atlas-classes-24", "--runs", str(runs), "--out", str(tmp_path)])
    assert capsys.readouterr().out == f"report: {tmp_path / 'index.html'}\n"
    assert "Which method for which growth?" in (tmp_path / "index.html").read_text()
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {"growth", "atlas-styles"}, "what has been run"
    assert [path.stem for path in (tmp_path / "figures").glob("*.svg")] == ["growth-atlas-styles"]


@pytest.mark.slow
def test_the_page_of_the_docs_is_made_from_what_is_kept(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_coarsely(monkeypatch)
    monkeypatch.setattr(growth_page, "RESULTS", tmp_path)
    monkeypatch.setattr(growth_page, "PAGE", tmp_path / "growth.md")
    assert {make() for make in growth_page.tables().values()} == {growth_page.NOT_RUN}
    assert keep_results.keep(runs, tmp_path / "growth-styles.csv.gz") == len(SHORT) * len(SEEDS) * 8
    known = {name: make() for name, make in growth_page.tables().items()}
    assert "| Method | atlas-classes-8 ↑ | atlas-styles ↑ | atlas-50 ↑ | Mean rank ↓ |" in known["growth"]
    assert known["atlas-styles"].endswith("](growth-atlas-styles.svg)")
    assert "".join(known.values()).count(REPLAY) == 1, "said once"
    assert known["atlas-classes-24"] == growth_page.NOT_RUN
    assert "| gift | 0.001 |\n| snd | 0.0001 |" in known["growth-rates"], "those of the runs"
    growth_page.write_figures()
    assert {path.stem for path in tmp_path.glob("*.svg")} == {f"growth-{name}" for name in LENGTHS}


def test_table_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench may have been stopped between two rows, or have rows without numbers; another may have those."""
    monkeypatch.setattr(results_page, "RESULTS", tmp_path)
    setup = {"what": "sizes", "method": {"name": "tasso"}, "optimizer_precision": "float32"}
    ways = [{"tune": tune, "checkpoint_activations": on} for tune in ("full", "lora") for on in (False, True)]
    numbers = {"peak_memory_gib": 7.26, "estimated_gib": 7.04, "seconds_ms": 42.4}
    benches = {
        "h200-sizes": {**setup, "rows": [{"model": "L", **ways[0], **numbers}, {"model": "L", **ways[1], **numbers}]},
        "h200-sizes-late": {
            **setup,
            "rows": [{"model": name, **way, "error": "late"} for name in "LX" for way in ways[2:]],
        },
        "h200-sizes-small": {**setup, "rows": [{"model": "B", **way, **numbers} for way in ways]},
        "h200-other": {"what": "step"},
    }
    (tmp_path / "bench.json").write_text(json.dumps(benches))
    cell = "7.3 (7.0) GiB, 42 ms"
    assert results_page.sizes("tasso").splitlines()[2:] == [
        f"| B | {cell} | {cell} | {cell} | {cell} |",
        f"| L | {cell} | {cell} | not measured | not measured |",
    ]
    assert results_page.sizes("tasso-both") == growth_page.NOT_RUN
