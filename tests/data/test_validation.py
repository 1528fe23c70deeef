"""Validation images: which they are, and that nothing reads test images where accuracies are measured on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasso
from conftest import write_data_set
from tasso.config import from_dict
from tasso.data import ImageSet, Task, drawn, load_sequence
from tasso.data.readers.split import hold_back
from tasso.errors import ConfigError, DataError, RunError
from tasso.training.evaluator import evaluate, evaluation_config
from tasso.training.extend import extend
from tasso.training.learner import learn


def image_set(labels: list[int]) -> ImageSet:
    return ImageSet(drawn.DrawnSource(), tuple(f"image {n}" for n in range(len(labels))), np.asarray(labels, np.int64))


@given(st.lists(st.integers(0, 5), max_size=60), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_share_of_each_class_is_held_back(labels: list[int], share: float, seed: int) -> None:
    images = image_set(labels)
    train, val = hold_back(images, share, seed)
    assert sorted(train.keys + val.keys) == sorted(images.keys), "together they are all, and none is in both"
    by_key = dict(zip(images.keys, labels, strict=True))
    for part in (train, val):
        assert [by_key[key] for key in part.keys] == part.labels.tolist()
    for label in set(labels):
        count, held_back = labels.count(label), val.labels.tolist().count(label)
        assert held_back < count
        assert held_back == 0 if count == 1 else abs(held_back - share * count) <= 1
    again = hold_back(images, share, seed)
    assert [part.keys for part in again] == [train.keys, val.keys]


@given(st.randoms())
def test_the_order_of_the_list_does_not_matter(random: Any) -> None:
    images = image_set([0] * 10 + [1] * 10)
    mixed = images.subset(np.asarray(random.sample(range(20), 20)))
    assert set(hold_back(mixed, 0.2, 3)[1].keys) == set(hold_back(images, 0.2, 3)[1].keys)


def options(root: Path, **more: Any) -> dict[str, Any]:
    return {"benchmark": "mtil-mini", "data_root": str(root), "sequence": "dtd", "check_counts": False, **more}


def task_of(root: Path, **more: Any) -> Task:
    return load_sequence(from_dict(options(root, **more)), with_reference=False).tasks[0]


def test_training_images_are_held_back_where_there_are_no_validation_images(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_data_set(tmp_path, "dtd", "dtd", classes=3, train=10, test=4)
    whole = task_of(tmp_path)
    assert (len(whole.train), len(whole.val), whole.split, whole.evaluated) == (30, 0, "test", whole.test)
    caplog.set_level("INFO")
    task = task_of(tmp_path, evaluate_on="val")
    assert (task.split, task.evaluated, len(task.test)) == ("val", task.val, 0)
    assert np.bincount(task.train.labels).tolist() == [8, 8, 8]
    assert np.bincount(task.val.labels).tolist() == [2, 2, 2]
    assert set(task.train.keys) | set(task.val.keys) == set(whole.train.keys)
    assert "dtd: no validation images, so 20 % of each class's training images are held back (6 of 30)" in caplog.text
    other = [task_of(tmp_path, evaluate_on="val", **more).val.keys for more in ({"seed": 7}, {"split_seed": 7})]
    assert other[0] == task.val.keys, "the same for all runs"
    assert other[1] != task.val.keys
    assert np.bincount(task_of(tmp_path, evaluate_on="val", test_per_class=1).val.labels).tolist() == [1, 1, 1]
    assert np.bincount(task_of(tmp_path, evaluate_on="val", val_share=0.5).val.labels).tolist() == [5, 5, 5]


def test_validation_images_are_used_where_there_are_some(tmp_path: Path) -> None:
    folder = write_data_set(tmp_path, "dtd", "dtd", classes=3, train=10, test=4)
    file = folder / "dtd_annotations.json"
    document = json.loads(file.read_text())
    document["data"]["val"] = document["data"]["train"][:9]
    document["data"]["train"] = document["data"]["train"][9:]
    file.write_text(json.dumps(document))
    task = task_of(tmp_path, evaluate_on="val")
    assert (len(task.train), len(task.val)) == (21, 9)
    atlas = load_sequence(from_dict({"evaluate_on": "val"}), with_reference=False)
    assert {(len(task.train), len(task.val)) for task in atlas.tasks} == {(12 * 64, 12 * 8)}


def test_classes_of_one_image_leave_nothing_to_validate_with(tmp_path: Path) -> None:
    write_data_set(tmp_path, "dtd", "dtd", classes=3, train=1, test=4)
    with pytest.raises(DataError, match="'dtd' has no validation images, and no class has two images"):
        task_of(tmp_path, evaluate_on="val")


@pytest.fixture
def without_test_images(tmp_path: Path, tiny_model: str) -> dict[str, Any]:
    """Options of a run on data whose test images are listed but not there."""
    for name in ("dtd", "eurosat", "imagenet"):
        folder = write_data_set(tmp_path / "data", name, name, train=10)
        for file in (folder / "images" / "test").iterdir():
            file.unlink()
    return {
        **options(tmp_path / "data", sequence="dtd,eurosat"), "model": tiny_model, "evaluate_on": "val", "steps": 2,
        "batch_size": 8, "reference_batch_size": 8, "device": "cpu", "method": {"name": "tasso", "rank": 6},
        "out": str(tmp_path / "run"),
    }  # fmt: skip


def test_validation_never_reads_test_images(without_test_images: dict[str, Any], tmp_path: Path) -> None:
    results = learn(from_dict(without_test_images))
    assert results["split"] == "val"
    counts = [tuple(data[split] for split in ("train", "val", "test")) for data in results["data"]["tasks"].values()]
    assert counts == [(24, 6, 0)] * 2
    packed = learn(from_dict({**without_test_images, "pack_dir": str(tmp_path / "packs"), "out": str(tmp_path / "b")}))
    assert packed["mtil"]["zero_shot"] == results["mtil"]["zero_shot"]
    with pytest.raises(DataError, match="image missing"):
        learn(from_dict({**without_test_images, "evaluate_on": "test", "out": str(tmp_path / "c")}))


def test_what_uses_the_run_follows_its_split(without_test_images: dict[str, Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    results = learn(from_dict(without_test_images))
    config = evaluation_config({}, run, "eval")
    found = evaluate(config, run)
    assert (found["split"], found["mtil"]) == ("val", results["mtil"]["matrix"][-1])
    assert tasso.load(run).config.evaluate_on == "val"
    longer = extend(run, [f"more={tmp_path / 'data' / 'imagenet'}"])
    assert json.loads((longer / "results.json").read_text())["split"] == "val"
    with pytest.raises(RunError, match="started with evaluate_on = 'val', not 'test'"):
        learn(from_dict({**without_test_images, "evaluate_on": "test"}))
    with pytest.raises(ConfigError, match=r"split_seed: .* trained with 1102, not 7, so its training images may be"):
        evaluate(evaluation_config({"split_seed": 7}, run, "eval"), run)
