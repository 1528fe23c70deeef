"""`tasso paper` from end to end, as a user types it: killed, repeated, and reported again from what is committed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

from conftest import few_images
from runs_on_disk import draw_coarsely
from tasso.cli import main
from tasso.experiments.plans import PLANS
from tasso.report import ReportError
from tasso.report.paper.arithmetic import count_arithmetic, read_arithmetic
from tasso.report.paper.evaluation import make_setup

KEEP = Path(__file__).parents[2] / "tools" / "keep_results.py"
PLANS_ASKED = ["whole-kd", "matrices", "alignment", "sequences"]
REFUSING = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "matplotlib", "open_clip"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from tasso.cli import main
main(sys.argv[1:])
"""


def command(out: Path, model: str) -> list[str]:
    """Three runs of two tasks on drawn images."""
    words = ["--benchmark", "atlas", "--limit-tasks", "2", "--steps", "4", "--batch-size", "4", "--device", "cpu"]
    words += ["--reference-batch-size", "4", "--reference-images", "8", "--test-per-class", "1", "--save-every", "1"]
    words += ["--model", model, "--for", "tasso", "method.rank=6", "lr=1e-3", "--for", "snd", "lr=1e-3"]
    return ["paper", *PLANS_ASKED, "--out", str(out), *words]


def files(folder: Path) -> dict[str, bytes]:
    """All of a report, but not the runs it may lie beside."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith("runs/")}


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'tasso[report]'")
    draw_coarsely(monkeypatch)


def test_killed_repeated_and_reported_again(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, deaths = tmp_path / "out", tmp_path / "deaths"
    words = command(out, tiny_model)
    deaths.mkdir()
    (deaths / "plan.json").write_text(json.dumps([{"how": "everyone", "step": 6, "run": "snd-S1", "times": 1}]))
    with (tmp_path / "said.txt").open("w") as said:
        killed = subprocess.run(
            [sys.executable, "-m", "tasso", *words], env=few_images(TASSO_TEST_DEATHS=str(deaths)),
            stdout=said, stderr=subprocess.STDOUT, start_new_session=True, check=False,
        )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
    assert not (out / "index.html").exists()

    again = subprocess.run(
        [sys.executable, "-m", "tasso", *words, "--figures", "false"], env=few_images(), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert "finished already: 2; left: 1 run" in again.stdout
    assert "3 runs in " in again.stdout
    assert f"report: {out / 'index.html'}" in again.stdout
    (log,) = (out / "runs" / "logs").glob("snd-*.log")
    assert "resuming textures at step" in log.read_text()
    assert not (out / "figures").exists()

    # What is committed: results and what they are, without configurations, checkpoints and logs.
    kept = tmp_path / "kept"
    names = {path.parent.name for path in (out / "runs").glob("*/results.json")}
    assert len(names) == 3
    subprocess.run([sys.executable, str(KEEP), str(out / "runs"), str(kept)], check=True)
    assert {path.relative_to(kept).as_posix() for path in kept.rglob("*.*")} == {
        "plans.json", *(f"{name}/results.json" for name in names),
    }  # fmt: skip
    assert str(tmp_path) not in (kept / "plans.json").read_text()

    # From there, with the figures; then the same again, elsewhere: the same files.
    reports = [tmp_path / name for name in ("one", "two")]
    for folder in reports:
        main(["paper", *PLANS_ASKED, "--runs", str(kept), "--out", str(folder)])
    one, two = map(files, reports)
    assert one == two
    for name in ("index.html", "verdict.json", "tables/alignment.csv", "figures/boxes-classes-atlas-s1.pdf",
                 "figures/matrix-tasso-s1-1102.png", "figures/captions.md"):  # fmt: skip
        assert name in one
    assert one["index.html"] == (out / "index.html").read_bytes()
    index = one["index.md"].decode()
    for name in ("distances-classes-atlas-s1", "boxes-images-atlas-s1", "matrix-tasso-s1-1102"):
        assert f"![{name}](figures/{name}.png)" in index
    assert {path for path in one if path.startswith("tables/")} == {
        path for path in files(out) if path.startswith("tables/")
    }
    capsys.readouterr()

    # The tool that writes committed reports does the same, and finds one that is not up to date.
    tool = run_path(str(KEEP.with_name("results_page.py")))
    there = tool["write_reports"].__globals__
    there.update(EVALUATIONS=tmp_path / "evaluations", REPORTS=tmp_path / "reports")
    shutil.copytree(kept, tmp_path / "evaluations" / "drawn")
    tables = tool["write_reports"](tmp_path / "reports")
    assert "| Claim | Outcome |" in tables["verdict-drawn"]
    assert tool["render"]("<!-- table verdict-drawn -->\nold\n<!-- end -->", tables).count("| not tested on") > 20
    page = tmp_path / "reports" / "drawn" / "index.html"
    assert page.is_file()
    assert not (page.parent / "figures").exists()
    assert not (page.parent / "tables" / "components-mtil.csv").exists(), "no run of that plan alone is there"
    assert "drawn: runs are missing, so these plans are left out: " in capsys.readouterr().out
    assert tool["differing"](page.parent, page.parent) == []
    assert "index.html" in tool["differing"](page.parent, kept)

    # Without torch and without matplotlib: everything but the figures, and a word about these.
    bare = tmp_path / "bare"
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, "paper", *PLANS_ASKED, "--runs", str(kept), "--out", str(bare)],
        env=few_images(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "no figures: figures need matplotlib" in done.stderr
    assert "No figures: figures need matplotlib" in (bare / "index.md").read_text()
    assert not (bare / "figures").exists()
    assert (bare / "index.html").read_bytes() == one["index.html"]


def test_runs_without_a_record_need_the_options_they_were_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    words = ["paper", "rank", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "plans.json: not found" in capsys.readouterr().err
    main([*words, "--steps", "3", "--figures", "false"])
    assert "3 of 3 runs missing" in (tmp_path / "report" / "index.md").read_text()


def test_arithmetic_of_a_step_is_counted_once(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    common = {"model": tiny_model, "batch_size": 4, "reference_batch_size": 8, "device": "cpu", "steps": 2}
    setup = make_setup(common, by_method={"tasso": {"method.rank": 6}})
    jobs = PLANS["compute"].jobs(setup)
    count_arithmetic(jobs, tmp_path, "cpu")
    counted = read_arithmetic(tmp_path)
    assert list(counted) == sorted(job.name for job in jobs)
    tasso, plain, snd = (counted[job.name].tflop for job in jobs)
    assert 0 < plain <= tasso < snd, "SnD has two teachers, and the subspace is small"
    assert {one.classes for one in counted.values()} == {12}
    before = (tmp_path / "compute.json").read_bytes()
    monkeypatch.setattr("tasso.experiments.bench.step.count_tflop", lambda *_: pytest.fail("counted twice"))
    count_arithmetic(jobs, tmp_path, "cpu")
    assert (tmp_path / "compute.json").read_bytes() == before

    def no_room(*_: object) -> float:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr("tasso.experiments.bench.step.count_tflop", no_room)
    count_arithmetic(jobs, tmp_path / "other", "cpu")
    assert "cannot be counted: CUDA out of memory" in caplog.text
    assert read_arithmetic(tmp_path / "other") == {}
    (tmp_path / "compute.json").write_text('{"x": {"tflop": "much", "classes": 1}}')
    with pytest.raises(ReportError, match=r"compute\.json: x\.tflop: expected a finite number"):
        read_arithmetic(tmp_path)
