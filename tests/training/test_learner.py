"""Whole runs: the run folder, and runs that are killed, stopped, repeated or given bad input."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import tasso
from tasso.config import from_dict
from tasso.errors import ConfigError, DataError, RunError
from tasso.evaluation.metrics import metrics_of_file
from tasso.report import read_run, write_page
from tasso.training.engine import choose_device, planned_steps
from tasso.training.evaluator import evaluate
from tasso.training.learner import learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

# A child process runs the same options with some functions wrapped, so that it gets a real SIGKILL or SIGINT at an
# exact point of the run, independent of timing.
CHILD = """
import json, os, signal, sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from tasso.training import engine, learner
from tasso.training import run_folder
from tasso.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
point, number = sys.argv[1], int(sys.argv[2])
calls = 0
def at(name, act):
    global calls
    if name == point:
        calls += 1
        if calls == number:
            act()
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
def wrap(owner, name, point_name, before=None, after=None):
    original = getattr(owner, name)
    def wrapped(*args, **kwargs):
        if before: at(point_name, before)
        result = original(*args, **kwargs)
        if after: at(point_name, after)
        return result
    setattr(owner, name, wrapped)
wrap(run_folder.RunFolder, "write_state", "after-state", after=die)
wrap(run_folder.RunFolder, "write_checkpoint", "after-checkpoint", after=die)
wrap(run_folder.RunFolder, "write_results", "before-results", before=die)
wrap(Path, "replace", "before-rename", before=die)
wrap(engine.Training, "advance", "kill-step", after=die)
wrap(engine.Training, "advance", "interrupt-step", after=interrupt)
wrap(learner, "accuracy_rows", "interrupt-evaluation", before=interrupt)
main(["run", "--config", sys.argv[3]])
"""


def run_child(options: dict[str, Any], point: str = "never", number: int = 1) -> subprocess.CompletedProcess[str]:
    folder = Path(str(options["out"])).parent
    file = folder / f"{Path(str(options['out'])).name}.yaml"
    file.write_text(json.dumps(options))  # JSON is YAML
    command = [sys.executable, "-c", CHILD, point, str(number), str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def check_same_run(one: Path, other: Path) -> None:
    """Both runs ended with the same bits, and no temporary file is left."""
    assert not list(one.rglob("*.tmp"))
    results = [json.loads((folder / "results.json").read_text()) for folder in (one, other)]
    for key in ("mtil", "mcil", "alignment"):
        assert results[0][key] == results[1][key]
    for result in results:
        seconds = ("preparing_seconds", "seconds", "evaluation_seconds")
        assert all(task[key] > 0 for task in result["per_task"] for key in seconds), "resumed or not"
    files = sorted(path.name for path in (one / "checkpoints").iterdir())
    assert files == sorted(path.name for path in (other / "checkpoints").iterdir())
    assert len(files) == 2
    for name in files:
        tensors, expected = (load_file(folder / "checkpoints" / name) for folder in (one, other))
        assert tensors.keys() == expected.keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, expected[key]), f"{name}: {key}"


@pytest.fixture
def stepwise(quick: dict[str, Any]) -> dict[str, Any]:
    return {**quick, "steps": 6, "save_every": 2}


@pytest.fixture
def uninterrupted(stepwise: dict[str, Any], tmp_path: Path) -> Path:
    learn(from_dict({**stepwise, "out": str(tmp_path / "whole")}))
    return tmp_path / "whole"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("after-state", 1),  # in the first task, at a saved step
        ("kill-step", 3),  # one step after a saved one
        ("after-state", 3),  # in the second task
        ("after-checkpoint", 1),  # the task is learned but not yet evaluated
        ("before-results", 2),  # evaluated, but results not yet written
        ("before-rename", 1),  # while the folder is being created
        ("before-rename", 4),  # in the middle of writing a file
        ("kill-step", 1),  # nothing saved yet
    ],
)
def test_killed_run_is_resumed_and_ends_with_the_same_bits(
    stepwise: dict[str, Any], uninterrupted: Path, point: str, number: int
) -> None:
    killed = run_child(stepwise, point, number)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    learn(from_dict(stepwise))
    check_same_run(Path(str(stepwise["out"])), uninterrupted)


@pytest.mark.slow
def test_ctrl_c_saves_the_state_and_says_how_to_resume(stepwise: dict[str, Any], uninterrupted: Path) -> None:
    stopped = run_child({**stepwise, "save_every": None}, "interrupt-step", 9)
    assert stopped.returncode == 130, stopped.stderr
    assert "stopped at step 3 of 6 of eurosat. The same command resumes it from there" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    again = run_child({**stepwise, "save_every": None})
    assert "resuming eurosat at step 3" in again.stderr
    check_same_run(Path(str(stepwise["out"])), uninterrupted)


@pytest.mark.slow
def test_ctrl_c_in_the_last_step_of_a_task_stops_the_run(stepwise: dict[str, Any], uninterrupted: Path) -> None:
    stopped = run_child(stepwise, "interrupt-step", 6)
    assert stopped.returncode == 130
    assert "stopped after the last step of dtd" in stopped.stderr
    learn(from_dict(stepwise))
    check_same_run(Path(str(stepwise["out"])), uninterrupted)


@pytest.mark.slow
def test_ctrl_c_after_overwrite_does_not_advise_to_overwrite_again(stepwise: dict[str, Any]) -> None:
    stopped = run_child({**stepwise, "overwrite": True}, "interrupt-step", 2)
    assert "The same command without --overwrite resumes it from there" in stopped.stderr
    assert not RunFolder(Path(str(stepwise["out"]))).read_config().overwrite


@pytest.mark.slow
def test_ctrl_c_during_evaluation_says_how_to_resume(stepwise: dict[str, Any], uninterrupted: Path) -> None:
    stopped = run_child(stepwise, "interrupt-evaluation", 2)
    assert stopped.returncode == 130
    assert "stopped; the same command goes on from what is saved" in stopped.stderr
    learn(from_dict(stepwise))
    check_same_run(Path(str(stepwise["out"])), uninterrupted)


def test_progress_shows_losses_and_speed(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    @contextlib.contextmanager
    def recorder(description: str, total: int, done: int = 0) -> Iterator[Any]:
        yield lambda count, note: notes.append(note) if "dtd" in description and "/" in description else None

    monkeypatch.setattr("tasso.training.loop.progress", recorder)
    monkeypatch.setattr("tasso.training.loop.READ_SECONDS", 0.0)
    learn(from_dict({**quick, "sequence": "dtd"}))
    assert len(notes) == 4
    assert all("ce " in note and "kd " in note and "images/s" in note for note in notes)


def test_run_folder_is_complete(quick: dict[str, Any]) -> None:
    run = tasso.learn(**quick)
    folder = Path(str(quick["out"]))
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "checkpoints", "config.yaml", "log.jsonl", "results.json",
    ]  # fmt: skip
    results = json.loads((folder / "results.json").read_text())
    assert results["tasks"] == ["dtd", "eurosat"]
    assert {"steps", "seconds", "images_per_second", "process_peak_memory_bytes", "trainable_parameters"} <= set(
        results["per_task"][0]
    )
    assert results["per_task"][0]["steps"] == 4
    assert results["per_task"][0]["trainable_parameters"] > 24 * 6
    assert metrics_of_file(folder) == {s: results[s]["metrics"] for s in ("mtil", "mcil")} == run.metrics
    config = RunFolder(folder).read_config()
    assert config.method["rank"] == 6
    assert config.method["subspace_scale"] == 10.0
    assert "torch" in (folder / "config.yaml").read_text()
    events = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert events[0] == "started"
    assert events.count("learned") == 2


def test_finished_run_is_not_repeated(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = learn(from_dict(quick))
    monkeypatch.setattr("tasso.training.learner.Learner", None)
    assert learn(from_dict(quick)) == first


@pytest.mark.slow
def test_evaluation_can_be_thinned(quick: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tasso")
    every = learn(from_dict({**quick, "score_seen": True, "out": str(tmp_path / "every")}))
    first, second = every["seen"]["matrix"][0]
    assert f"after dtd, accuracy (%), Seen: dtd {first:.1f}, eurosat {second:.1f}" in caplog.text
    options = {**quick, "score_seen": True, "evaluate_every": 2}
    thinned = learn(from_dict(options))
    for setting in ("mtil", "mcil", "seen"):
        assert thinned[setting]["matrix"] == [[None, None], every[setting]["matrix"][1]]
        found, expected = thinned[setting]["metrics"], every[setting]["metrics"]
        known = {"accuracy", "last", *(["incremental_last"] if setting == "seen" else [])}
        assert {key for key, value in found.items() if value is not None} == known
        assert {key: found[key] for key in known} == {key: expected[key] for key in known}
    folder = Path(quick["out"])
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [event["task"] for event in events if event["event"] == "evaluated"] == ["eurosat"]
    assert evaluate(from_dict(quick), folder, "dtd")["mtil"] == every["mtil"]["matrix"][0], "a row can be made up for"
    page = write_page(read_run(folder), tmp_path / "page.html", title="t", intro="i").read_text()
    assert "not evaluated after this task" in page

    stopped = json.loads((folder / "results.json").read_text())
    for setting in ("mtil", "mcil", "seen"):
        stopped[setting].update(matrix=stopped[setting]["matrix"][:1], metrics=None)
    stopped.update(finished=False, per_task=stopped["per_task"][:1])
    (folder / "results.json").write_text(json.dumps(stopped))
    resumed, times = learn(from_dict(options)), ("per_task", "wall_seconds")
    assert {key: value for key, value in resumed.items() if key not in times} == {
        key: value for key, value in thinned.items() if key not in times
    }
    assert resumed["wall_seconds"] > thinned["wall_seconds"] > 0, "all starts together"
    with pytest.raises(RunError, match="started with evaluate_every = 2, not 1"):
        learn(from_dict({**options, "evaluate_every": 1}))


def test_other_options_in_the_same_folder_are_refused(quick: dict[str, Any]) -> None:
    learn(from_dict(quick))
    with pytest.raises(RunError, match=r"started with seed = 1102, not 7\. Choose another --out, or --overwrite"):
        learn(from_dict({**quick, "seed": 7}))
    with pytest.raises(RunError, match=r"started with method\.rank = 6, not 5"):
        learn(from_dict({**quick, "method": {"name": "tasso", "rank": 5}}))
    assert learn(from_dict({**quick, "seed": 7, "overwrite": True}))["seed"] == 7


def test_other_folders_are_not_touched(quick: dict[str, Any]) -> None:
    out = Path(str(quick["out"]))
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"not a run folder, but not empty \(thesis\.txt\)"):
        learn(from_dict(quick))
    with pytest.raises(
        RunError, match=r"not a run folder, but not empty \(thesis\.txt\), so --overwrite does not touch it"
    ):
        learn(from_dict({**quick, "overwrite": True}))
    assert sorted(p.name for p in out.iterdir()) == ["thesis.txt"]
    assert (out / "thesis.txt").read_text() == "years of work"


def test_a_file_as_run_folder_is_an_error_before_anything_is_loaded(
    quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasso.training.learner.Learner", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file, not a folder"):
        learn(from_dict({**quick, "out": str(tmp_path / "file")}))


def test_folder_that_cannot_be_created_is_named(quick: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run folder"):
        learn(from_dict({**quick, "out": str(tmp_path / "file" / "run")}))


def test_damaged_results_are_named(quick: dict[str, Any]) -> None:
    learn(from_dict(quick))
    file = Path(str(quick["out"])) / "results.json"
    for content, message in (("{", "not valid JSON"), ('{"mtil": {}}', "not the results of a run")):
        file.write_text(content)
        with pytest.raises(RunError, match=rf"results\.json: {message}.*--overwrite"):
            learn(from_dict(quick))


@pytest.mark.parametrize("key", ["alignment", "class_names", "data", "templates", "version"])
def test_run_folders_of_earlier_versions_are_refused(quick: dict[str, Any], key: str) -> None:
    learn(from_dict(quick))
    file = Path(str(quick["out"])) / "results.json"
    results = json.loads(file.read_text())
    del results[key]
    file.write_text(json.dumps(results))
    with pytest.raises(RunError, match=rf"results\.json: .* of this version: '{key}' is missing.*--overwrite"):
        learn(from_dict(quick))


@pytest.mark.slow
def test_tensor_files_without_our_metadata_are_refused(stepwise: dict[str, Any]) -> None:
    run_child(stepwise, "after-state", 3)
    out = Path(str(stepwise["out"]))
    for file in ("state.safetensors", "checkpoints/01-dtd.safetensors"):
        content = (out / file).read_bytes()
        save_file(load_file(out / file), out / file, {"about": "{}"})
        with pytest.raises(RunError, match=rf"{file}: has no metadata of this version of tasso.*--overwrite"):
            learn(from_dict(stepwise))
        (out / file).write_bytes(content)


def test_variants_have_different_labels(quick: dict[str, Any]) -> None:
    labels = [
        resolve(from_dict({**quick, "method": method}))[0].label
        for method in ("tasso", {"name": "tasso", "rank": 6, "kd_whole": "l2"}, "finetune")
    ]
    assert labels == ["TASSO", "TASSO (rank 6, kd_whole l2)", "fine-tuning"]
    assert resolve(from_dict({**quick, "method": "tasso", "protocol": "paper"}))[0].label == "TASSO (protocol paper)"
    assert resolve(from_dict({**quick, "method": {"name": "tasso", "rank_energy": 0.9}}))[0].label == (
        "TASSO (rank_energy 0.9)"
    )
    low_rank = {**quick, "method": "tasso", "tune": "lora"}
    assert resolve(from_dict({**low_rank, "lora_rank": 16}))[0].label == "TASSO (tune lora)"
    changed = {"lora_rank": 4, "lora_alpha": 8, "lora_lr_factor": 0.5}
    label = "TASSO (tune lora, lora_rank 4, lora_alpha 8, lora_lr_factor 0.5)"
    assert resolve(from_dict({**low_rank, **changed}))[0].label == label


def test_prompts_may_contain_any_braces(quick: dict[str, Any]) -> None:
    assert learn(from_dict({**quick, "template": "{x} a {} or {} {", "method": "finetune"}))["finished"]


def test_two_processes_do_not_share_a_folder(quick: dict[str, Any]) -> None:
    config = from_dict(quick)
    folder = RunFolder(config.out)
    with folder.opened(config), pytest.raises(RunError, match="another process"), folder.opened(config):
        pass


@pytest.mark.slow
def test_damaged_state_and_missing_checkpoint_are_named(stepwise: dict[str, Any]) -> None:
    run_child(stepwise, "after-state", 3)
    out = Path(str(stepwise["out"]))
    good = (out / "state.safetensors").read_bytes()
    (out / "state.safetensors").write_bytes(good[:100])
    with pytest.raises(RunError, match=r"state\.safetensors: damaged"):
        learn(from_dict(stepwise))
    (out / "state.safetensors").write_bytes(good)
    (out / "checkpoints" / "01-dtd.safetensors").unlink()
    with pytest.raises(RunError, match=r"01-dtd\.safetensors is missing"):
        learn(from_dict(stepwise))


def test_unreadable_image_stops_the_run_with_its_name(quick: dict[str, Any], tmp_path: Path) -> None:
    from conftest import write_data_set

    folder = write_data_set(tmp_path, "dtd", "dtd")
    (folder / "images" / "train" / "005.png").write_bytes(b"not an image")
    broken = {**quick, "data_root": str(tmp_path), "sequence": "dtd", "method": "finetune"}
    with pytest.raises(DataError, match=r"005\.png: not a readable image"):
        learn(from_dict(broken))


def test_same_seed_same_bits_other_seed_other_bits(quick: dict[str, Any], tmp_path: Path) -> None:
    final = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        learn(from_dict({**quick, "seed": seed, "out": str(tmp_path / name)}))
        final.append(load_file(tmp_path / name / "checkpoints" / "02-eurosat.safetensors")["visual.proj"])
    assert torch.equal(final[0], final[1])
    assert not torch.equal(final[0], final[2])


def test_checkpoint_holds_the_trained_tower_only(quick: dict[str, Any]) -> None:
    learn(from_dict(quick))
    names = load_file(Path(str(quick["out"])) / "checkpoints" / "02-eurosat.safetensors")
    assert all(name.startswith("visual.") for name in names)


def test_evaluate_run_equals_its_last_row(quick: dict[str, Any]) -> None:
    results = learn(from_dict(quick))
    options = {k: v for k, v in quick.items() if k not in ("out", "steps")}
    found = evaluate(from_dict(options), Path(str(quick["out"])))
    assert found["mtil"] == results["mtil"]["matrix"][-1]
    assert found["mcil"] == results["mcil"]["matrix"][-1]
    assert evaluate(from_dict(options))["mtil"] == results["mtil"]["zero_shot"]
    assert tasso.evaluate(run=str(quick["out"]))["mtil"] == results["mtil"]["matrix"][-1]
    with pytest.raises(ConfigError, match="'steps' is not an option of an evaluation"):
        tasso.evaluate(steps=3)


def test_classify(quick: dict[str, Any], tmp_path: Path) -> None:
    from conftest import draw

    run = tasso.learn(**quick)
    image = draw(1, 77)
    image.save(tmp_path / "one.png")
    predictions = run.classify([tmp_path / "one.png", image, np.asarray(image)], top=3)
    assert [len(top) for top in predictions] == [3, 3, 3]
    assert predictions[0] == predictions[1] == predictions[2]
    assert predictions[0][0].probability >= predictions[0][1].probability
    assert {p.task for p in run.classify(image, task="dtd", top=9)[0]} == {"dtd"}
    open_vocabulary = run.classify(image, classes=["red thing", "blue thing"], top=2)[0]
    assert sum(p.probability for p in open_vocabulary) == pytest.approx(1)
    with pytest.raises(ConfigError, match="no task 'birds'"):
        run.classify(image, task="birds")
    with pytest.raises(DataError, match="not a readable image"):
        run.classify(tmp_path / "absent.png")
    for array in (np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8), np.zeros((8, 8, 3))):
        with pytest.raises(DataError, match=r"an array must be \(height, width, 3\) of uint8"):
            run.classify(array)
    assert tasso.load(str(quick["out"])).classify(Image.new("RGB", (40, 20)))[0][0].class_name


def test_step_rules() -> None:
    sizes = [3334, 2820, 13500, 4093, 50500, 2944, 6509, 7639]
    assert [planned_steps("code", n, 32) for n in sizes] == [1000, 880, 1000, 1000, 3156, 920, 1000, 1000]
    assert sum(planned_steps("code", n, 32) for n in sizes) == 9956
    assert sum(planned_steps("paper", n, 32) for n in sizes) == 7800
    assert planned_steps("code", 5, 32) == 10
    assert [planned_steps("quick", n, 32) for n in (5, 64, 9999)] == [10, 20, 200]


def test_bad_devices_are_named() -> None:
    for device in ("mps", "meta", "cpu:7"):
        with pytest.raises(ConfigError, match="is not auto, cpu, cuda or cuda:N"):
            choose_device(device)
    with pytest.raises(ConfigError, match="device: 'gpu' is not"):
        choose_device("gpu")
    with pytest.raises(ConfigError, match="device: 'cuda:99' is not there"):
        choose_device("cuda:99")


def test_signal_handlers_and_working_directory_are_restored(quick: dict[str, Any]) -> None:
    handler, directory = signal.getsignal(signal.SIGINT), Path.cwd()
    learn(from_dict(quick))
    assert (signal.getsignal(signal.SIGINT), Path.cwd()) == (handler, directory)
