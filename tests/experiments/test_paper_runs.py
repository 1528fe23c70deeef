"""`tasso paper` from end to end, as a user types it: killed, repeated, and reported again from what is committed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import few_images
from run_results import results
from runs_on_disk import draw_coarsely
from tasso.cli import main
from tasso.experiments.paper import count_arithmetic, make_setup
from tasso.experiments.plans import PLANS
from tasso.report import read_study

pytestmark = pytest.mark.slow

KEEP = Path(__file__).parents[2] / "tools" / "keep_results.py"
PLANS_ASKED = ["whole-kd", "matrices", "alignment", "sequences"]
WHERE = "atlas-limit-tasks-2-test-per-class-1-s1"  # in the names of figures
REFUSING = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "open_clip"):
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
    draw_coarsely(monkeypatch)


def test_killed_repeated_and_reported_again(tiny_model: str, tmp_path: Path) -> None:
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
        [sys.executable, "-m", "tasso", *words, "--tables-only"], env=few_images(), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert "finished already: 2; left: 1 run" in again.stdout
    assert "3 runs in " in again.stdout
    assert f"report: {out / 'index.html'}" in again.stdout
    (log,) = (out / "runs" / "logs").glob("snd-*.log")
    assert "resuming textures at step" in log.read_text()
    assert not (out / "figures").exists()

    # What is committed: one file of results, and one that says what they are.
    kept = tmp_path / "kept" / "drawn.csv"
    kept.parent.mkdir()
    subprocess.run([sys.executable, str(KEEP), str(out / "runs"), str(kept)], check=True)
    assert [path.name for path in sorted(kept.parent.iterdir())] == ["drawn.csv", "drawn.json"]
    for file in kept.parent.iterdir():
        assert str(tmp_path) not in file.read_text()

    # From there, with the figures; then the same again, elsewhere: the same files.
    reports = [tmp_path / name for name in ("one", "two")]
    for folder in reports:
        main(["paper", *PLANS_ASKED, "--runs", str(kept), "--out", str(folder)])
    one, two = map(files, reports)
    assert one == two
    for name in ("index.html", "verdict.json", "tables/alignment.csv", f"figures/boxes-classes-{WHERE}.pdf",
                 "figures/matrix-tasso-s1-1102-mtil.png", "figures/captions.md"):  # fmt: skip
        assert name in one
    assert one["index.html"] == (out / "index.html").read_bytes()
    index = one["index.md"].decode()
    for name in (f"distances-images-{WHERE}", f"boxes-classes-{WHERE}", "matrix-tasso-s1-1102-mtil"):
        assert f"![{name}](figures/{name}.png)" in index
    assert {path for path in one if path.startswith("tables/")} == {
        path for path in files(out) if path.startswith("tables/")
    }

    # Without torch the same.
    bare = tmp_path / "bare"
    subprocess.run(
        [sys.executable, "-c", REFUSING, "paper", *PLANS_ASKED, "--runs", str(kept), "--out", str(bare),
         "--tables-only"],
        env=few_images(), check=True,
    )  # fmt: skip
    assert not (bare / "figures").exists()
    assert (bare / "index.html").read_bytes() == one["index.html"]


def test_runs_of_a_sweep_are_kept_as_well(tmp_path: Path) -> None:
    """Any folder of runs is a study; runs in folders of their own keep their names."""
    for name in ("a/tasso-1", "b/tasso-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "results.json").write_text(json.dumps(results()))
    file = tmp_path / "study.csv.gz"
    subprocess.run([sys.executable, str(KEEP), str(tmp_path / "runs"), str(file)], check=True)
    assert list(dict.fromkeys(read_study(file)["run"])) == ["a/tasso-1", "b/tasso-1"]
    assert not (tmp_path / "study.json").exists()


def test_runs_without_a_record_need_the_options_they_were_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    words = ["paper", "rank", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "plans.json: not found" in capsys.readouterr().err
    main([*words, "--steps", "3", "--tables-only"])
    assert "3 of 3 runs missing" in (tmp_path / "report" / "index.md").read_text()


def test_arithmetic_of_a_step_is_counted_once(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    common = {"model": tiny_model, "batch_size": 4, "reference_batch_size": 8, "device": "cpu", "steps": 2}
    setup = make_setup(common, by_method={"tasso": {"method.rank": 6}})
    jobs = PLANS["compute"].jobs(setup)
    counted = count_arithmetic(jobs, {}, "cpu")
    assert list(counted) == [job.name for job in jobs]
    tasso, plain, snd = (counted[job.name].tflop for job in jobs)
    assert 0 < plain <= tasso < snd, "SnD has two teachers, and the subspace is small"
    assert {one.classes for one in counted.values()} == {12}
    fewer = make_setup({**common, "tune": "last:1"}, by_method={"tasso": {"method.rank": 6}})
    [less, *_] = count_arithmetic(PLANS["compute"].jobs(fewer)[:1], {}, "cpu").values()
    assert less.tflop < tasso
    monkeypatch.setattr("tasso.experiments.bench.step.count_work", lambda *_: pytest.fail("counted twice"))
    assert count_arithmetic(jobs, counted, "cpu") == counted

    def no_room(*_: object) -> float:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr("tasso.experiments.bench.step.count_work", no_room)
    assert count_arithmetic(jobs, {}, "cpu") == {}
    assert "cannot be counted: CUDA out of memory" in caplog.text
