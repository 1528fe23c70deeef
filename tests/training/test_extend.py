"""Extended runs: equal to a run on all tasks from the start, the old run unchanged, both safe against kills."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tasso
from own_images import write_folder
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import ConfigError, DataError, RunError
from tasso.evaluation.metrics import metrics, metrics_of_file
from tasso.report import SETTINGS, accuracies, matrix_table, read_run, read_runs, to_csv, write_page
from tasso.report.figures import draw
from tasso.training.engine import Training
from tasso.training.learner import learn
from tasso.training.run_folder import RunFolder

Point = tuple[Any, str, str]
POINTS: dict[str, Point] = {
    "before-rename": (Path, "replace", "before"),
    "after-link": (RunFolder, "take_checkpoint", "after"),
    "after-step": (Training, "advance", "after"),
    "after-checkpoint": (RunFolder, "write_checkpoint", "after"),
}


def killed(point: str, number: int, args: list[str]) -> int | None:
    """Exit code of a process that extends a run and kills itself at an exact point.

    Forked, because starting Python takes longer than everything else.
    """
    owner, name, when = POINTS[point]
    calls = 0

    def extend_and_die() -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            result = original(*args, **kwargs) if when == "after" or calls < number else None
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, counted)
        main(["extend", *args])

    process = multiprocessing.get_context("fork").Process(target=extend_and_die)
    process.start()
    process.join(300)
    return process.exitcode


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three domains, and one of reference images. Do not write into them."""
    folder = tmp_path_factory.mktemp("images")
    for domain in ("pets", "food", "flowers", "land"):
        write_folder(folder / domain, domain)
    return folder


def options(images: Path, model: str, *names: str, **more: Any) -> dict[str, Any]:
    return {
        "tasks": {name: str(images / name) for name in names}, "reference": str(images / "land"), "model": model,
        "steps": 4, "batch_size": 4, "reference_batch_size": 4, "lr": 1e-3, "method": {"name": "tasso", "rank": 6},
        "device": "cpu", "save_every": 2, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def whole(images: Path, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all three tasks from the start."""
    out = tmp_path_factory.mktemp("whole") / "run"
    learn(from_dict({**options(images, tiny_model, "pets", "food", "flowers"), "out": str(out)}))
    return out


@pytest.fixture(scope="module")
def two(images: Path, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on two tasks. Do not write into it."""
    out = tmp_path_factory.mktemp("two") / "run"
    learn(from_dict({**options(images, tiny_model, "pets", "food"), "out": str(out)}))
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def results_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def check_same_end(one: Path, other: Path) -> None:
    """Same results and same bits in all checkpoints, and no temporary file is left."""
    assert not list(one.rglob("*.tmp"))
    first, second = results_of(one), results_of(other)
    for key in ("tasks", "mtil", "mcil", "alignment", "data", "class_names"):
        assert first[key] == second[key], key
    names = sorted(file.name for file in (other / "checkpoints").iterdir())
    assert sorted(file.name for file in (one / "checkpoints").iterdir()) == names
    for name in names:
        tensors, expected = (load_file(folder / "checkpoints" / name) for folder in (one, other))
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors.items()), name


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    {"name": "tasso", "rank": 6},
    {"name": "icarl", "memory": 8},
    {"name": "moe-adapters", "experts": 4, "hidden": 4, "selector_steps": 3, "reference_steps": 3,
     "selector_batch_size": 4, "selector_features": "clip"},
])  # fmt: skip
def test_an_extended_run_ends_like_a_run_on_all_tasks(
    method: dict[str, Any], images: Path, tiny_model: str, tmp_path: Path
) -> None:
    for out, names in (("whole", ("pets", "food", "flowers")), ("two", ("pets", "food"))):
        learn(from_dict({**options(images, tiny_model, *names, method=method), "out": str(tmp_path / out)}))
    before = contents(tmp_path / "two")
    run = tasso.extend(tmp_path / "two", [f"flowers={images / 'flowers'}"])
    assert run.folder.path == tmp_path / "two+flowers"
    check_same_end(run.folder.path, tmp_path / "whole")
    assert contents(tmp_path / "two") == before, "the finished run is not changed"


def test_earlier_measurements_stay_comparable(two: Path, whole: Path, images: Path, tmp_path: Path) -> None:
    old = results_of(two)
    new = tasso.extend(two, {"flowers": str(images / "flowers")}, tmp_path / "three").results
    assert new["extends"] == {"run": "run", **{key: old[key] for key in ("tasks", "mtil", "mcil", "per_task")}}
    for before, now in zip(old["mtil"]["matrix"], new["mtil"]["matrix"], strict=False):
        assert now[:2] == before, "the classes of a task have not changed"
    steps = [{k: v for k, v in task.items() if k != "evaluation_seconds"} for task in new["per_task"][:2]]
    assert steps == [{k: v for k, v in task.items() if k != "evaluation_seconds"} for task in old["per_task"]]
    # Extended again.
    again = tasso.extend(tmp_path / "three", {"ground": str(images / "land")})
    assert again.folder.path.name == "three+ground"
    assert again.tasks == ["pets", "food", "flowers", "ground"]
    assert [row[:3] for row in again.results["mtil"]["matrix"][:3]] == new["mtil"]["matrix"]
    assert again.classify(next((images / "land").rglob("*.png")), task="ground")[0][0].task == "ground"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("before-rename", 1),  # while the folder is being created
        ("before-rename", 3),  # while checkpoints are being linked
        ("after-link", 2),  # all checkpoints are linked, results are not written
        ("after-step", 3),  # a step after a saved one
        ("after-checkpoint", 1),  # learned, not evaluated
    ],
)
def test_a_killed_extension_is_resumed(
    point: str, number: int, two: Path, whole: Path, images: Path, tmp_path: Path
) -> None:
    before = contents(two)
    args = [
        str(two),
        "--tasks",
        f"flowers={images / 'flowers'}",
        "--out",
        str(tmp_path / "three"),
        "--save-every",
        "2",
    ]
    assert killed(point, number, args) == -signal.SIGKILL
    assert contents(two) == before
    main(["extend", *args])
    check_same_end(tmp_path / "three", whole)
    assert contents(two) == before


def test_a_killed_extension_is_resumed_without_the_old_run(
    two: Path, whole: Path, images: Path, tmp_path: Path
) -> None:
    """Once its checkpoints are linked, the new folder does not need the old one."""
    shutil.copytree(two, tmp_path / "old")
    args = [str(tmp_path / "old"), "--tasks", f"flowers={images / 'flowers'}", "--out", str(tmp_path / "three")]
    assert killed("after-step", 3, args) == -signal.SIGKILL
    shutil.rmtree(tmp_path / "old")
    main(["run", "--config", str(tmp_path / "three" / "config.yaml")])
    check_same_end(tmp_path / "three", whole)


@pytest.mark.slow
def test_rows_of_removed_checkpoints_are_left_open(
    two: Path, whole: Path, images: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(two, tmp_path / "old")
    RunFolder(tmp_path / "old").keep_checkpoints("last")
    with caplog.at_level(logging.INFO):
        run = tasso.extend(tmp_path / "old", {"flowers": str(images / "flowers")}, tmp_path / "three")
    assert "the checkpoints after pets were removed" in caplog.text
    plan = next(line for line in caplog.messages if "steps:" in line)
    assert "flowers" in plan
    assert "pets" not in plan, "a removed model is neither trained nor evaluated"
    expected, found = results_of(whole), run.results
    assert found["mtil"]["matrix"][0] == [*expected["mtil"]["matrix"][0][:2], None]
    assert found["mcil"]["matrix"][0] == [None, None, None]
    for setting in SETTINGS:
        assert found[setting]["matrix"][1:] == expected[setting]["matrix"][1:]
        assert found[setting]["zero_shot"] == expected[setting]["zero_shot"]
    mtil, complete = (results["mtil"]["metrics"] for results in (found, expected))
    assert {key for key, value in mtil.items() if value is not None} == {"accuracy", "forgetting", "last"}
    assert all(value is None or value == complete[key] for key, value in mtil.items())
    mcil = found["mcil"]["metrics"]
    assert {key for key, value in mcil.items() if value is not None} == {"accuracy", "last"}
    assert metrics_of_file(tmp_path / "three") == {"mtil": mtil, "mcil": mcil}
    # Reports show known values and leave out unknown ones.
    result = read_run(tmp_path / "three")
    assert accuracies(result, "mcil").iloc[1].isna().all()
    lines = to_csv(matrix_table(result, "mcil")).splitlines()
    assert lines[2].endswith(",,,,")
    page = write_page(read_runs([tmp_path / "three", whole]), tmp_path / "page.html", title="x", intro="").read_text()
    assert "nan" not in page.lower()
    assert "not measured: no checkpoint was left" in page
    texts = [text.get_text() for setting in SETTINGS for text in draw.matrix(result, setting).axes[0].texts]
    assert texts.count("–") == 4 + 2, "and the means of these rows"
    assert "nan" not in texts


def test_metrics_that_need_unknown_accuracies_are_none() -> None:
    matrix: list[list[float | None]] = [[50.0, None, 30.0], [40.0, 60.0, 20.0], [45.0, 55.0, 70.0]]
    found = metrics([10.0, 20.0, 30.0], matrix)
    assert found["forgetting"] == pytest.approx(((50 - 40) + (60 - 55)) / 2)
    assert found["accuracy"] == found["last"] == pytest.approx(170 / 3)
    assert [found[key] for key in ("zero_shot_degradation", "transfer", "average")] == [None, None, None]


def test_a_run_on_a_benchmark_can_be_extended(quick: dict[str, Any], images: Path, tmp_path: Path) -> None:
    old = learn(from_dict(quick))
    run = tasso.extend(str(quick["out"]), [f"pets={images / 'pets'}"])
    assert (run.results["benchmark"], run.tasks) == ("mtil-mini+own", ["dtd", "eurosat", "pets"])
    assert [row[:2] for row in run.results["mtil"]["matrix"][:2]] == old["mtil"]["matrix"]
    assert run.results["mtil"]["zero_shot"][:2] == old["mtil"]["zero_shot"]
    assert run.results["data"]["reference"] == old["data"]["reference"]
    assert tasso.evaluate(run=run.folder.path)["mcil"] == run.results["mcil"]["matrix"][-1]
    assert not run.config.merges_names, "classes of the same name stay apart, as in the benchmark"


def test_runs_that_cannot_be_extended(two: Path, images: Path, tmp_path: Path) -> None:
    new = {"flowers": str(images / "flowers")}
    with pytest.raises(RunError, match="not a run folder"):
        tasso.extend(tmp_path, new)
    with pytest.raises(ConfigError, match=r"has a task 'Food' already; give it another name"):
        tasso.extend(two, {"Food": str(images / "flowers")})
    with pytest.raises(ConfigError, match="is the run itself"):
        tasso.extend(two, new, two)
    with pytest.raises(ConfigError, match="extend: 'steps' is as it was in"):
        tasso.extend(two, new, steps=3)
    shutil.copytree(two, tmp_path / "none")
    RunFolder(tmp_path / "none").keep_checkpoints("none")
    with pytest.raises(RunError, match=r"02-food\.safetensors is missing, so there is no model to go on from"):
        tasso.extend(tmp_path / "none", new)
    shutil.copytree(two, tmp_path / "unfinished")
    folder = RunFolder(tmp_path / "unfinished")
    folder.write_results({**results_of(two), "finished": False})
    with pytest.raises(RunError, match="this run is not finished"):
        tasso.extend(tmp_path / "unfinished", new)
    assert not [path for path in tmp_path.iterdir() if "+" in path.name]
    assert not [path for path in two.parent.iterdir() if "+" in path.name]


def test_changed_data_of_old_tasks_are_an_error(images: Path, tiny_model: str, tmp_path: Path) -> None:
    shutil.copytree(images, tmp_path / "mine")
    out = tmp_path / "run"
    learn(from_dict({**options(tmp_path / "mine", tiny_model, "pets", "food"), "out": str(out)}))
    next((tmp_path / "mine" / "food").rglob("*.png")).unlink()
    with pytest.raises(
        RunError, match=r"the data of task 'food' have changed.*put them back, and new images into a new task$"
    ):
        tasso.extend(out, {"flowers": str(images / "flowers")})
    assert not (tmp_path / "run+flowers").exists()


def test_where_old_folders_have_moved_the_message_says_what_to_do(
    images: Path, tiny_model: str, tmp_path: Path
) -> None:
    shutil.copytree(images, tmp_path / "mine")
    out, new = tmp_path / "run", {"flowers": str(images / "flowers")}
    learn(from_dict({**options(tmp_path / "mine", tiny_model, "pets", "food"), "out": str(out)}))
    (tmp_path / "mine").rename(tmp_path / "moved")
    with pytest.raises(DataError, match=r"task 'pets': no such file or folder: .*repeat .*--tasks NAME=NEWPLACE"):
        tasso.extend(out, new)
    learn(from_dict({**options(tmp_path / "moved", tiny_model, "pets", "food"), "out": str(out)}))
    with pytest.raises(DataError, match=r"task 'flowers': no such file or folder: .*nowhere$"):
        tasso.extend(out, {"flowers": str(tmp_path / "nowhere")})
    assert tasso.extend(out, new).results["finished"]


def test_another_extension_cannot_use_the_same_folder(two: Path, images: Path, tmp_path: Path) -> None:
    tasso.extend(two, {"flowers": str(images / "flowers")}, tmp_path / "three")
    with pytest.raises(RunError, match=r"was started with tasks = \['pets', 'food', 'flowers'\]"):
        tasso.extend(two, {"ground": str(images / "land")}, tmp_path / "three")


def test_classes_that_the_run_has_already_are_named(
    two: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(images / "pets", tmp_path / "more")
    caplog.set_level(logging.INFO)
    main(["extend", str(two), "--tasks", f"dogs={tmp_path / 'more'}", "--out", str(tmp_path / "three")])
    messages = " ".join(caplog.messages)
    assert "pets: classes shared with dogs (3); each is scored as one class" in messages
    assert "have the same name" not in messages
    assert "MCIL on own" in capsys.readouterr().out
