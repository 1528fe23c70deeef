"""Class-incremental learning: steps of classes from any task, their scores and their metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from own_images import write_folder
from tasso.config import from_dict
from tasso.data import BENCHMARKS, Task, load_sequence
from tasso.data.benchmarks import class_incremental as cil
from tasso.data.steps import class_order, split_task, step_sizes
from tasso.errors import ConfigError, TassoError
from tasso.report import combined_table, conclude, read_run, summary_table, to_latex, write_page
from tasso.training.evaluator import evaluate, evaluation_config
from tasso.training.extend import extend
from tasso.training.learner import learn

ATLAS = {"benchmark": "atlas", "sequence": "pets"}


def pets() -> Task:
    return load_sequence(from_dict(ATLAS), with_reference=False).tasks[0]


def test_every_class_is_in_one_step_with_all_its_images() -> None:
    whole, steps = pets(), load_sequence(from_dict({**ATLAS, "split_classes": "4+3", "class_order": "1993"})).tasks
    assert [len(step.class_names) for step in steps] == [4, 3, 3, 2]
    assert [step.name for step in steps] == ["pets-01", "pets-02", "pets-03", "pets-04"]
    order = np.random.RandomState(1993).permutation(12)
    assert [name for step in steps for name in step.class_names] == [whole.class_names[i] for i in order]
    for split in ("train", "val", "test"):
        found = {
            (key, step.class_names[label])
            for step in steps
            for key, label in zip(getattr(step, split).keys, getattr(step, split).labels, strict=True)
        }
        images = getattr(whole, split)
        assert found == {(key, whole.class_names[label]) for key, label in zip(images.keys, images.labels, strict=True)}


def test_a_class_has_the_same_images_in_whatever_step_it_is_learned() -> None:
    options = {**ATLAS, "shots": 3, "test_per_class": 2, "evaluate_on": "val"}
    (whole,) = load_sequence(from_dict(options)).tasks
    steps = load_sequence(from_dict({**options, "split_classes": "5", "class_order": "7"})).tasks
    for split in ("train", "val"):
        assert sorted(key for step in steps for key in getattr(step, split).keys) == sorted(getattr(whole, split).keys)


def test_the_number_of_steps_can_be_limited_and_each_task_is_split() -> None:
    options = {"benchmark": "atlas", "sequence": "pets,food", "split_classes": "6"}
    names = ["pets-01", "pets-02", "food-01", "food-02"]
    assert load_sequence(from_dict(options)).names == names
    assert load_sequence(from_dict({**options, "limit_tasks": 3})).names == names[:3]


@pytest.mark.parametrize("text", ["natural", None, ",".join(map(str, range(12)))])
def test_natural_order(text: str | None) -> None:
    assert class_order(text, pets()) == list(range(12))


def test_orders_by_name_by_label_and_from_a_file(tmp_path: Path) -> None:
    task = pets()
    reverse = task.class_names[::-1]
    file = tmp_path / "order.txt"
    file.write_text("\n".join(reverse))
    expected = list(range(12))[::-1]
    assert class_order(str(file), task) == class_order(",".join(reverse), task) == expected
    assert class_order(",".join(map(str, expected)), task) == expected


def test_seeds_draw_the_orders_of_the_peers() -> None:
    """Facts: numpy's legacy permutation, seed 1993."""
    assert np.random.RandomState(1993).permutation(100)[:5].tolist() == [68, 56, 78, 8, 23]
    assert np.random.RandomState(1993).permutation(200)[:6].tolist() == [168, 136, 51, 9, 183, 101]


def test_presets_have_the_schedules_of_the_peers() -> None:
    steps = {}
    for benchmark in cil.CLASS_INCREMENTAL:
        (data_set,) = benchmark.data_sets
        sizes = step_sizes(benchmark.options["split_classes"], data_set.classes)
        assert sum(sizes) == data_set.classes
        steps[benchmark.name] = len(sizes)
    assert steps == {
        "cifar100-10": 10, "cifar100-20": 20, "cifar100-50": 50, "cifar100-pilot": 10, "imagenet-r-pilot": 10,
        "cub-pilot": 10, "tiny-imagenet-5": 6, "tiny-imagenet-10": 11, "tiny-imagenet-20": 21,
    }  # fmt: skip
    for order, count in ((cil.CIFAR_ORDER, 100), (cil.TINY_ORDER, 200)):
        assert sorted(map(int, order.split(","))) == list(range(count))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"split_classes": "0"}, "a step with no class"),
        ({"split_classes": "5+0"}, "a step with no class"),
        ({"split_classes": "12+3"}, "a step with no class.*first step takes them all"),
        ({"split_classes": "ten"}, "split_classes: expected a number"),
        ({"class_order": "1993"}, "class_order: needs --split-classes"),
        ({"split_classes": "all", "class_order": "5"}, "class_order: needs --split-classes"),
        ({"split_classes": "4", "class_order": "0,1,1"}, "'1' is given more than once"),
        ({"split_classes": "4", "class_order": "0,1,2"}, "9 classes of task 'pets' are left out"),
        ({"split_classes": "4", "class_order": "no-such.txt"}, "neither a class of task 'pets' nor a file"),
        ({"split_classes": "4", "class_order": str(2**32)}, "a seed must be below"),
    ],
)
def test_bad_splits_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_sequence(from_dict({**ATLAS, **options}))


def test_a_task_may_name_some_classes_of_its_place(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "food", "food", classes=4)
    names = load_sequence(from_dict({"tasks": f"food={folder}"}), with_reference=False).tasks[0].class_names
    tasks = {
        "old": {"from": str(folder), "classes": [names[2], names[0]]},
        "new": {"from": str(folder), "classes": [names[1]]},
    }
    old, new = load_sequence(from_dict({"tasks": tasks}), with_reference=False).tasks
    assert (old.class_names, new.class_names) == ((names[2], names[0]), (names[1],))
    for classes, complaint in (([], "a list"), (["x", "x"], "more than once"), (["gull"], "no class 'gull'")):
        with pytest.raises(TassoError, match=f"old: classes.*{complaint}"):
            load_sequence(from_dict({"tasks": {"old": {"from": str(folder), "classes": classes}}}))


def test_cifar_is_read_through_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    from torchvision.datasets import CIFAR100

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 6), ("test", 4)):
        pixels = np.arange(count * 3072, dtype=np.int64).astype(np.uint8).reshape(count, 3072)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": [i % 2 for i in range(count)]}))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["apple", "aquarium_fish"]}))
    with pytest.raises(TassoError, match=r"cannot be read there.*not found or corrupted"):
        cil.CIFAR.load(tmp_path)
    monkeypatch.setattr(CIFAR100, "_check_integrity", lambda self: True)
    monkeypatch.setitem(CIFAR100.meta, "md5", None)
    task = BENCHMARKS["cifar100-10"].load_task("cifar100", tmp_path, False)
    assert task.class_names == ("apple", "aquarium fish")
    assert (len(task.train), len(task.val), len(task.test)) == (6, 0, 4)
    assert np.asarray(task.train.source.read(task.train.keys[1])).shape == (32, 32, 3)
    with pytest.raises(TassoError, match="expected 100 classes, 50000 train, 10000 test"):
        BENCHMARKS["cifar100-10"].load_task("cifar100", tmp_path, True)


def test_tiny_imagenet_as_it_is_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    for synset in ("n02", "n01"):
        (folder / "train" / synset / "images").mkdir(parents=True)
        (folder / "train" / synset / "images" / f"{synset}_0.JPEG").touch()
    (folder / "val").mkdir()
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttench\n")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t32\t44\t62\n")
    task = cil.tiny_imagenet(tmp_path)
    assert task.class_names == ("tench", "goldfish")
    assert task.train.labels.tolist() == [0, 1]
    assert (task.test.keys, task.test.labels.tolist()) == (("val/images/val_0.JPEG",), [1])


def test_folders_of_synsets_need_names(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for synset in ("n01443537", "n01484850"):
            (tmp_path / "imagenet-r" / part / synset).mkdir(parents=True)
            (tmp_path / "imagenet-r" / part / synset / "art_0.jpg").touch()
    load = cil.class_folders("imagenet-r")
    with pytest.raises(TassoError, match=r"'n01443537' is no class name.*names\.txt"):
        load(tmp_path)
    (tmp_path / "imagenet-r" / "names.txt").write_text("goldfish\ngreat white shark\n")
    assert load(tmp_path).class_names == ("goldfish", "great white shark")


# -- a run ---------------------------------------------------------------------------------------------------------


def test_a_run_in_steps_is_scored_over_all_classes_so_far(quick: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = {
        **quick,
        "sequence": "dtd",
        "split_classes": "2+1",
        "class_order": "2,0,1",
        "method": "finetune",
        "steps": 2,
    }
    results = learn(from_dict(options))
    assert results["tasks"] == ["dtd-01", "dtd-02"]
    assert results["class_names"]["dtd-01"] == ["dtd kind 2", "dtd kind 0"]
    seen, mtil, mcil = (results[setting] for setting in ("seen", "mtil", "mcil"))
    assert seen["images"] == [12, 6]
    # Before a step is learned its images compete within it; after the last step all classes are seen.
    assert seen["matrix"][0] == mtil["matrix"][0]
    assert seen["matrix"][1] == mcil["matrix"][1]
    steps = [seen["matrix"][0][0], (2 * seen["matrix"][1][0] + seen["matrix"][1][1]) / 3]
    assert seen["metrics"]["incremental_last"] == pytest.approx(steps[1])
    assert seen["metrics"]["incremental_average"] == pytest.approx(sum(steps) / 2)
    zero = mcil["zero_shot"]
    assert seen["zero_shot_steps"][1] == pytest.approx((2 * zero[0] + zero[1]) / 3)
    frame = read_run(out)
    assert f"{steps[1]:.2f}" in to_latex(summary_table(frame, "seen"))
    assert [column.name for column in combined_table(frame).columns][-2:] == ["Incremental average", "Incremental last"]
    row = summary_table(frame, "seen").rows[0].cells
    assert row[5].value == pytest.approx(sum(zero) / 2), "zero-shot among all classes, as after the last step"
    assert "Seen accuracy" in conclude(frame)
    page = write_page(frame, tmp_path / "page.html", title="steps", intro="").read_text()
    assert "all classes so far" in page
    assert 'data-show="seen"' in page


@pytest.mark.slow
def test_a_run_in_steps_can_be_extended(quick: dict[str, Any], tmp_path: Path) -> None:
    learn(from_dict({**quick, "sequence": "dtd", "split_classes": "2", "class_order": "2,0,1", "method": "finetune"}))
    new = write_folder(tmp_path / "food", "food")
    out = extend(Path(str(quick["out"])), [f"food={new}"])
    results = json.loads((out / "results.json").read_text())
    assert results["tasks"] == ["dtd-01", "dtd-02", "food"]
    assert results["class_names"]["dtd-01"] == ["dtd kind 2", "dtd kind 0"]
    assert len(results["seen"]["matrix"]) == 3


def test_a_step_is_called_by_its_task_and_a_number() -> None:
    assert [step.name for step in split_task(pets(), "1", None)][-1] == "pets-12"


def test_another_benchmark_is_not_split_as_the_run_was(quick: dict[str, Any], tmp_path: Path) -> None:
    learn(from_dict({**quick, "sequence": "dtd", "split_classes": "2", "limit_tasks": 1, "method": "finetune"}))
    run = tmp_path / "run"
    assert evaluation_config({}, run, "eval").split_classes == "2"
    assert evaluation_config({"benchmark": "mtil-mini"}, run, "eval").split_classes == "2"
    assert evaluation_config({"benchmark": "atlas"}, run, "eval").split_classes is None
    found = evaluate(evaluation_config({"limit_tasks": 2, "device": "cpu"}, run, "eval"), run)
    assert found["seen"][1] == found["mtil"][1], "the second step is not learned"
    assert len(found["seen"]) == 2
    for other in ({"sequence": "eurosat"}, {"class_order": "2,1,0"}):
        found = evaluate(evaluation_config({**other, "device": "cpu"}, run, "eval"), run)
        assert "seen" not in found, "other tasks, or other classes under their names, are not those learned"
