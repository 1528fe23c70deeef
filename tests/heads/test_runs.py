"""Heads in whole runs: learned, killed and resumed, saved, damaged, and used through `tasso.load`."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import tasso
from method_runs import learner_for, options_for
from own_images import write_folder
from tasso.config import from_dict
from tasso.errors import ModelError, RunError
from tasso.heads import HEADS, HeadInference, collect
from tasso.heads.base import Moments
from tasso.models.inference import Inference
from tasso.training.checkpoints import head_tensors, load_checkpoint
from tasso.training.engine import Training
from tasso.training.evaluator import evaluate
from tasso.training.learner import learn
from tasso.training.run import Run
from tasso.training.run_folder import RunFolder

HEAD = "head/"


@pytest.fixture(scope="module", autouse=True)
def few_random_features() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for kind in HEADS.values():
            patch.setattr(kind, "random", min(kind.random, 32))
        yield


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two domains, and one of reference images. Do not write into them."""
    folder = tmp_path_factory.mktemp("images")
    for domain in ("pets", "food", "land"):
        write_folder(folder / domain, domain, images=8)
    return folder


def own(images: Path, model: str, out: Path, **more: Any) -> dict[str, Any]:
    return {
        "tasks": {name: str(images / name) for name in ("pets", "food")}, "reference": str(images / "land"),
        "model": model, "steps": 4, "batch_size": 4, "reference_batch_size": 4, "lr": 1e-3, "device": "cpu",
        "method": {"name": "tasso", "rank": 6}, "out": str(out), **more,
    }  # fmt: skip


def checkpoints(folder: Path) -> dict[str, dict[str, Tensor]]:
    return {path.name: load_file(path) for path in sorted((folder / "checkpoints").glob("*.safetensors"))}


def heads(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of the head in each file."""
    return {
        file: {name: tensor for name, tensor in tensors.items() if name.startswith(HEAD)}
        for file, tensors in checkpoints(folder).items()
    }


# -- what a run leaves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tasso", "frozen", "moe-adapters"])
def test_a_run_learns_a_head(quick: dict[str, Any], method: str) -> None:
    options = {**quick, "head": "lda", "method": options_for(method), "score_seen": True}
    results = learn(from_dict(options))
    assert results["finished"]
    after = heads(Path(str(quick["out"])))
    assert list(after) == ["01-dtd.safetensors", "02-eurosat.safetensors"]
    one, two = after.values()
    assert one[f"{HEAD}counts"].tolist() == [12] * 3
    assert two[f"{HEAD}counts"].tolist() == [12] * 6
    assert two[f"{HEAD}sums"].shape == (6, 24 + 64 + 32)
    assert bool(two[f"{HEAD}losses"].any()) == (method == "frozen")
    assert f"{HEAD}projection" not in two
    moved = not two[f"{HEAD}sums"][:3].equal(one[f"{HEAD}sums"])
    assert moved == (method != "frozen"), "sums follow a model that is trained"
    assert all(accuracy > 90 for accuracy in results["mtil"]["matrix"][-1]), "colours are easily told apart"


@pytest.mark.parametrize("name", ["lda", "nearest-mean", "fecam"])
def test_sums_are_those_of_the_model_that_has_learned_the_task(quick: dict[str, Any], name: str) -> None:
    learner = learner_for({**quick, "head": name, "lr": 1e-2})
    head, task = learner.head, learner.sequence.tasks[0]
    assert head is not None
    train = learner.data.pixels(task.train, f"{task.name} train")

    def sums() -> Moments:
        columns = head.head.add_classes(head.keys(task.name, task.class_names))
        return collect(head.inference(learner._inference()), train, task.train.labels, columns).moments

    with_pretrained = sums()
    head.clear()
    learner._learn_task(0)
    now = sums()
    torch.testing.assert_close(head.head.sums.double(), now.sums, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(now.sums, with_pretrained.sums, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_a_frozen_model_with_any_head(quick: dict[str, Any], name: str) -> None:
    options = {**quick, "head": name, "method": {"name": "frozen"}}
    results = learn(from_dict(options))
    assert all(accuracy > 90 for accuracy in results["mtil"]["matrix"][-1]), results["mtil"]["matrix"]
    run = tasso.load(options["out"], device="cpu")
    assert isinstance(run.inference, HeadInference)
    assert type(run.inference.head) is HEADS[name]  # type: ignore[index]
    assert run.inference.head.counts.tolist() == [12] * 6


@pytest.mark.parametrize("method", ["tasso", "frozen", "moe-adapters"])
def test_a_loaded_run_classifies_as_it_was_evaluated(quick: dict[str, Any], method: str, mini_root: Path) -> None:
    options = {**quick, "precision": "float32", "head": "lda", "method": options_for(method), "score_seen": True}
    results = learn(from_dict(options))
    run = tasso.load(options["out"], device="cpu")
    document = json.loads((mini_root / "eurosat" / "eurosat_annotations.json").read_text())
    files, labels = zip(*document["data"]["test"], strict=True)
    found = run.classify([mini_root / "eurosat" / "images" / file for file in files])
    right = [each[0].class_name == document["class_names"][label] for each, label in zip(found, labels, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(results["seen"]["matrix"][-1][1], abs=0.01)
    again = evaluate(from_dict(options), Path(str(options["out"])))
    assert again["mtil"] == pytest.approx(results["mtil"]["matrix"][-1])
    assert again["seen"] == pytest.approx(results["seen"]["matrix"][-1])


def test_texts_alone_leave_nothing(quick: dict[str, Any]) -> None:
    learn(from_dict({**quick, "head": "texts", "limit_tasks": 1}))
    assert heads(Path(str(quick["out"]))) == {"01-dtd.safetensors": {}}
    assert not isinstance(tasso.load(quick["out"], device="cpu").inference, HeadInference)


# -- the frozen model of a run on own tasks ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(images: Path, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on own tasks, with the usual head. Do not write into it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    learn(from_dict(own(images, tiny_model, out)))
    return out


def test_the_frozen_model_of_a_run_is_that_of_the_frozen_method(
    finished: Path, images: Path, tiny_model: str, tmp_path: Path
) -> None:
    learn(from_dict(own(images, tiny_model, tmp_path / "frozen", method={"name": "frozen"})))
    expected = heads(tmp_path / "frozen")["02-food.safetensors"]
    found = heads(finished)["frozen.safetensors"]
    assert found.keys() == expected.keys()
    assert all(tensor.equal(expected[name]) for name, tensor in found.items())


def test_after_frozen_is_what_was_evaluated(finished: Path, images: Path, tiny_model: str) -> None:
    results = json.loads((finished / "results.json").read_text())
    run, pretrained = Run(finished, after="frozen", device="cpu"), Run(finished, after="0", device="cpu")
    assert isinstance(run.inference, HeadInference)
    for name, tensor in run.clip.model.state_dict().items():
        assert tensor.equal(pretrained.clip.model.state_dict()[name]), "nothing is trained"
    options = own(images, tiny_model, finished)
    again = evaluate(from_dict({**options, "split_seed": run.config.split_seed}), finished, after="frozen")
    for setting in ("mtil", "mcil"):
        assert again[setting] == results["frozen"][setting]


def test_a_run_without_one_says_so(quick: dict[str, Any]) -> None:
    learn(from_dict({**quick, "head": "lda", "limit_tasks": 1}))
    with pytest.raises(RunError, match="this run has no frozen model with a head; runs on own tasks make one"):
        Run(Path(str(quick["out"])), after="frozen", device="cpu").classify(np.zeros((16, 16, 3), np.uint8))


# -- killed and resumed --------------------------------------------------------------------------------------------

POINTS: dict[str, tuple[Any, str]] = {
    "step": (Training, "advance"),
    "checkpoint": (RunFolder, "write_checkpoint"),
    "results": (RunFolder, "write_results"),
    "frozen": (RunFolder, "write_frozen_head"),
}


def killed(options: dict[str, Any], point: str, number: int) -> int | None:
    """Exit code of a process that learns, and kills itself after a call of this."""
    owner, name = POINTS[point]
    original, calls = getattr(owner, name), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(*args, **kwargs)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def learn_and_die() -> None:
        setattr(owner, name, counted)
        learn(from_dict(options))

    process = multiprocessing.get_context("fork").Process(target=learn_and_die)
    process.start()
    process.join(300)
    return process.exitcode


def check_same_end(one: Path, other: Path) -> None:
    results = [json.loads((folder / "results.json").read_text()) for folder in (one, other)]
    for key in ("mtil", "mcil", "frozen"):
        assert results[0].get(key) == results[1].get(key)
    ours, theirs = checkpoints(one), checkpoints(other)
    assert list(ours) == list(theirs)
    for file, tensors in ours.items():
        assert tensors.keys() == theirs[file].keys()
        assert any(name.startswith(HEAD) for name in tensors)
        for name, tensor in tensors.items():
            assert tensor.equal(theirs[file][name]), f"{file}: {name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("step", 3),  # in the first task
        ("checkpoint", 1),  # the task is learned but not yet evaluated
        ("results", 3),  # between the tasks: zero-shot, frozen, first task
        ("step", 7),  # in the second task
        ("frozen", 1),  # the frozen model is written but not recorded
    ],
)
@pytest.mark.parametrize("name", ["lda", "ranpac", "fecam"])
def test_a_killed_run_ends_with_the_same_head(
    images: Path, tiny_model: str, tmp_path: Path, name: str, point: str, number: int
) -> None:
    more = {"head": name, "save_every": 2}
    learn(from_dict(own(images, tiny_model, tmp_path / "whole", **more)))
    options = own(images, tiny_model, tmp_path / "killed", **more)
    assert killed(options, point, number) == -signal.SIGKILL
    learn(from_dict(options))
    check_same_end(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["frozen", "moe-adapters"])
@pytest.mark.parametrize("number", [1, 2])
def test_runs_of_other_methods_killed_after_a_task_end_with_the_same_head(
    quick: dict[str, Any], tmp_path: Path, method: str, number: int
) -> None:
    options = {**quick, "head": "lda", "method": options_for(method)}
    learn(from_dict({**options, "out": str(tmp_path / "whole")}))
    assert killed({**options, "out": str(tmp_path / "killed")}, "checkpoint", number) == -signal.SIGKILL
    learn(from_dict({**options, "out": str(tmp_path / "killed")}))
    check_same_end(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_an_extended_run_ends_with_the_head_of_a_run_on_all_tasks(
    images: Path, tiny_model: str, tmp_path: Path
) -> None:
    options = own(images, tiny_model, tmp_path / "all")
    learn(from_dict(options))
    learn(from_dict({**options, "tasks": {"pets": str(images / "pets")}, "out": str(tmp_path / "one")}))
    tasso.extend(tmp_path / "one", {"food": str(images / "food")}, out=tmp_path / "two")
    check_same_end(tmp_path / "two", tmp_path / "all")


# -- damaged heads -------------------------------------------------------------------------------------------------


def without(tensors: dict[str, Tensor]) -> None:
    del tensors["head/sums"]


def of_another_shape(tensors: dict[str, Tensor]) -> None:
    tensors["head/sums"] = tensors["head/sums"][:, 1:].contiguous()


def of_another_type(tensors: dict[str, Tensor]) -> None:
    tensors["head/gram"] = tensors["head/gram"].double()


def no_number(tensors: dict[str, Tensor]) -> None:
    tensors["head/gram"][3] = torch.nan


def negative(tensors: dict[str, Tensor]) -> None:
    tensors["head/counts"][1] = -1


def foreign(tensors: dict[str, Tensor]) -> None:
    tensors["head/other"] = torch.zeros(1)


DAMAGE: list[tuple[Callable[[dict[str, Tensor]], None], type[Exception], str]] = [
    (without, RunError, r"incomplete, 'head/sums' is missing; its head is not that of --head lda"),
    (of_another_shape, RunError, r"'head/sums' has shape \(\d, 119\) of torch.float32 instead of \(\d, 120\)"),
    (of_another_type, RunError, r"'head/gram' has shape .* of torch.float64 instead of .* of torch.float32"),
    (no_number, ModelError, r"'?head/gram'? contains inf or NaN"),
    (negative, RunError, r"'head/counts' has negative numbers"),
    (foreign, RunError, r"'head/other' does not belong here"),
]


@pytest.fixture(scope="module", params=["02-food", "frozen"])
def whole_file(request: pytest.FixtureRequest, finished: Path) -> tuple[Path, str, str]:
    return finished, f"{request.param}.safetensors", "frozen" if request.param == "frozen" else "food"


@pytest.mark.parametrize(("damage", "error", "message"), DAMAGE, ids=lambda case: getattr(case, "__name__", ""))
def test_a_damaged_head_is_refused(
    whole_file: tuple[Path, str, str], tmp_path: Path, damage: Any, error: type[Exception], message: str
) -> None:
    finished, name, after = whole_file
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    file = copy / "checkpoints" / name
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    damage(tensors)
    save_file(tensors, file, metadata)
    with pytest.raises(error, match=message) as raised:
        _ = Run(copy, after=after, device="cpu").inference
    assert str(file) in str(raised.value)


def test_a_run_does_not_go_on_from_a_damaged_head(quick: dict[str, Any], tmp_path: Path) -> None:
    options = {**quick, "head": "lda", "method": {"name": "frozen"}}
    learner = learner_for(options)
    learner._learn_task(0)
    file = Path(str(quick["out"])) / "checkpoints" / "01-dtd.safetensors"
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    negative(tensors)
    save_file(tensors, file, metadata)
    with pytest.raises(RunError, match=r"01-dtd.safetensors: 'head/counts' has negative numbers"):
        learner_for(options)._learn_task(1)


def test_a_head_of_another_kind_is_refused(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    text = (copy / "config.yaml").read_text()
    assert "head: lda" in text
    (copy / "config.yaml").write_text(text.replace("head: lda", "head: ranpac"))
    with pytest.raises(RunError, match=r"02-food.safetensors: .*head/"):
        _ = Run(copy, device="cpu").inference


def test_what_is_loaded_is_what_was_saved(finished: Path) -> None:
    run = Run(finished, device="cpu")
    inference = run.inference
    assert isinstance(inference, HeadInference)
    saved = heads(finished)["02-food.safetensors"]
    for name, tensor in inference.head.state_dict().items():
        assert tensor.equal(saved[f"{HEAD}{name}"])
    assert head_tensors(None) == {}
    with_first = load_checkpoint(run._pretrained(), run.folder, "pets")[1]
    assert isinstance(with_first, HeadInference)
    assert len(with_first.head.counts) == len(run.class_names["pets"])


def test_a_run_of_a_version_without_heads_compares_with_texts(quick: dict[str, Any]) -> None:
    options = {**quick, "limit_tasks": 1, "head": "texts"}
    learn(from_dict(options))
    folder = Path(str(quick["out"]))
    config = folder / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("head:")]
    config.write_text("\n".join(lines))
    assert type(Run(folder, device="cpu").inference) is Inference
    assert learn(from_dict(options))["finished"], "the same run, not repeated"
