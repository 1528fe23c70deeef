"""The field's benchmarks: orders, sizes, splits, names and prompts as the peers have them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tasso.cli import main
from tasso.config import RunConfig, from_dict, read_templates
from tasso.data import BENCHMARKS, load_sequence, task_order
from tasso.data.benchmarks.field import COOP_SETS, ORDER_I, ORDER_II, PEERS, random_split
from tasso.data.catalogue import with_benchmark_options
from tasso.data.prepare.check import check
from tasso.data.prepare.fingerprint import Fingerprint, ZeroShot
from tasso.data.prepare.options import Options
from tasso.data.prepare.prepare import prepare
from tasso.data.task import ImageSet
from tasso.errors import ConfigError, DataError
from tasso.training.conditions import conditions
from tasso.training.resolve import resolve


def touch(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b" / "data"
    write(data / "variants.txt", "707-320", "727-200")
    write(data / "images_variant_train.txt", "0000001 707-320", "0000002 727-200")
    write(data / "images_variant_test.txt", "0000003 727-200")


def caltech(root: Path) -> None:
    for name, count in (("BACKGROUND_Google", 2), ("Faces", 4), ("Faces_easy", 3), ("water_lilly", 3)):
        for number in range(1, count + 1):
            touch(root / "caltech101" / "101_ObjectCategories" / name / f"image_{number:04d}.jpg")


def dtd(root: Path) -> None:
    for split in ("train", "test"):
        write(root / "dtd/dtd/labels" / f"{split}1.txt", "banded/banded_0002.jpg", "dotted/dotted_0001.jpg")
    (root / "dtd/dtd/images").mkdir()


def eurosat(root: Path) -> None:
    for name in ("AnnualCrop", "SeaLake"):
        for number in range(5):
            touch(root / "eurosat/2750" / name / f"{name}_{number}.jpg")


def flowers(root: Path) -> None:
    (root / "flowers-102/jpg").mkdir(parents=True)
    savemat(root / "flowers-102/imagelabels.mat", {"labels": np.array([1, 97, 2])})
    savemat(root / "flowers-102/setid.mat", {"trnid": [1, 2], "valid": [3, 3], "tstid": [3, 1]})


def food(root: Path) -> None:
    for split in ("train", "test"):
        write(
            root / "food-101/meta" / f"{split}.json",
            json.dumps({"apple_pie": ["apple_pie/1"], "waffles": ["waffles/2"]}),
        )
    (root / "food-101/images").mkdir()


def mnist(root: Path) -> None:
    for part in ("train", "t10k"):
        folder = root / "MNIST/raw"
        folder.mkdir(parents=True, exist_ok=True)
        images = struct.pack(">iiii", 2051, 3, 28, 28) + bytes(3 * 784)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, 3) + bytes([0, 1, 9]))


def pets(root: Path) -> None:
    for split in ("trainval", "test"):
        write(root / "oxford-iiit-pet/annotations" / f"{split}.txt", "american_bulldog_100 1 2 1", "Abyssinian_1 2 1 1")
    (root / "oxford-iiit-pet/images").mkdir()


def cars(root: Path) -> None:
    folder = root / "stanford_cars"
    for place in (folder / "devkit", folder / "cars_train", folder / "cars_test"):
        place.mkdir(parents=True)
    rows = np.array([("00001.jpg", 1), ("00002.jpg", 2)], dtype=[("fname", "O"), ("class", "O")])
    savemat(folder / "devkit/cars_train_annos.mat", {"annotations": rows})
    savemat(folder / "cars_test_annos_withlabels.mat", {"annotations": rows})
    names = np.array(["Acura TL Sedan 2012", "Audi S4 Sedan 2007"], dtype=object)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": names})


def sun(root: Path) -> None:
    write(root / "SUN397/ClassName.txt", "/a/abbey", "/a/apartment_building/outdoor")
    for name in ("a/abbey", "a/apartment_building/outdoor"):
        for number in range(5):
            touch(root / "SUN397" / name / f"sun_{number}.jpg")


# Task: how it is written, class names that ZSCL gives the classes there, training and test images.
REPLICAS: dict[str, tuple[Callable[[Path], None], dict[int, str], tuple[int, int]]] = {
    "aircraft": (aircraft, {0: "707-320"}, (2, 1)),
    "caltech101": (caltech, {0: "off-center face", 1: "centered face", 2: "water lilly"}, (8, 2)),
    "dtd": (dtd, {0: "banded"}, (2, 2)),
    "eurosat": (eurosat, {0: "annual crop land", 1: "lake or sea"}, (8, 2)),
    "flowers": (flowers, {96: "mallow", 0: "pink primrose", 59: "pink and yellow dahlia"}, (2, 2)),
    "food": (food, {0: "apple pie"}, (2, 2)),
    "mnist": (mnist, {0: "0 - zero", 9: "9 - nine"}, (3, 3)),
    "pets": (pets, {0: "American Bulldog"}, (2, 2)),
    "cars": (cars, {0: "Acura TL Sedan 2012"}, (2, 2)),
    "sun397": (sun, {1: "apartment building/outdoor"}, (8, 2)),
}


@pytest.mark.parametrize("name", REPLICAS)
def test_data_sets_as_torchvision_keeps_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import Flowers102

    monkeypatch.setattr(Flowers102, "_check_integrity", lambda self: True)
    make, names, sizes = REPLICAS[name]
    with pytest.raises(DataError, match=f"torchvision's {PEERS[name].kind} cannot be read there"):
        BENCHMARKS["mtil-11"].load_task(name, tmp_path / "nowhere", False)
    make(tmp_path)
    task = BENCHMARKS["mtil-11"].load_task(name, tmp_path, False)
    assert {label: task.class_names[label] for label in names} == names
    assert (len(task.train), len(task.val), len(task.test)) == (sizes[0], 0, sizes[1])
    assert task.prompts(()) == PEERS[name].forms
    assert task.train_prompts(()) == PEERS[name].forms[:1]
    if len(PEERS[name].parts) == 1:
        assert not set(task.train.keys) & set(task.test.keys), "a random split of the whole"
    if name == "mnist":
        assert np.asarray(task.test.source.read(task.test.keys[2])).shape == (28, 28, 3)
    with pytest.raises(DataError, match=f"{name}: expected {PEERS[name].sizes[0]} classes"):
        BENCHMARKS["mtil-11"].load_task(name, tmp_path, True)


def test_orders_sizes_and_prompts_are_those_of_the_facts() -> None:
    sizes = {name: (*peer.sizes, len(peer.forms)) for name, peer in PEERS.items()}
    assert sizes == {
        "aircraft": (100, 3334, 3333, 2), "caltech101": (101, 6941, 1736, 34), "cifar100": (100, 50000, 10000, 18),
        "dtd": (47, 1880, 1880, 8), "eurosat": (10, 21600, 5400, 3), "flowers": (102, 1020, 6149, 1),
        "food": (101, 75750, 25250, 1), "mnist": (10, 60000, 10000, 1), "pets": (37, 3680, 3669, 1),
        "cars": (196, 8144, 8041, 9), "sun397": (397, 87003, 21751, 2),
    }  # fmt: skip
    assert sum(one[0] for one in sizes.values()) == 1201
    assert all(len(set(peer.forms)) == len(peer.forms) for peer in PEERS.values())
    options = {"benchmark": "mtil-11", "data_root": "x"}
    assert task_order(from_dict(options)) == task_order(from_dict({**options, "sequence": "I"})) == list(ORDER_I)
    assert task_order(from_dict({**options, "sequence": "II"})) == list(ORDER_II)
    assert set(ORDER_I) == set(ORDER_II)
    with pytest.raises(ConfigError, match=r"no task 'III'.*; or S1 … S11, I, II"):
        task_order(from_dict({**options, "sequence": "III"}))
    tail = BENCHMARKS["x-tail"]
    assert list(tail.tasks) == [name for name in ORDER_I if name != "cifar100"]
    assert sum(data_set.classes for data_set in tail.data_sets) == 1100


def test_random_splits_are_those_of_torch() -> None:
    """`torch.utils.data.random_split` with the same generator."""
    images = ImageSet.of(None, [(f"{n}.jpg", n) for n in range(11)])  # type: ignore[arg-type]
    parts = torch.utils.data.random_split(range(11), [8, 3], torch.Generator().manual_seed(42))  # type: ignore[arg-type]
    for found, part in zip(random_split(images), parts, strict=True):
        assert found.labels.tolist() == list(part.indices)


def write_coop(root: Path, name: str, classes: tuple[str, ...]) -> None:
    one = COOP_SETS[name]
    lists: dict[str, list[Any]] = {}
    for split in ("train", "val", "test"):
        for label, kind in enumerate(classes):
            touch(root / one.folder / "images" / f"{split}-{label}.jpg")
            lists.setdefault(split, []).append([f"{split}-{label}.jpg", label, kind])
    write(root / one.folder / one.split, json.dumps(lists))


def test_coops_splits_have_its_names_and_one_template(tmp_path: Path) -> None:
    write_coop(tmp_path, "eurosat", ("Annual Crop Land", "Sea or Lake"))
    write_coop(tmp_path, "cars", ("2012 Acura TL Sedan", "2011 Audi_S6 Sedan"))
    mnist(tmp_path)
    load, tail = BENCHMARKS["mtil-11-coop"].load_task, BENCHMARKS["x-tail"].load_task
    assert load("eurosat", tmp_path, False).class_names == ("Annual Crop Land", "Sea or Lake")
    assert load("eurosat", tmp_path, False).templates == ("a centered satellite photo of {}.",)
    assert load("cars", tmp_path, False).class_names == ("2012 Acura TL Sedan", "2011 Audi S6 Sedan")
    assert tail("eurosat", tmp_path, False).class_names[0] == "Annual Crop Land satellite location"
    assert tail("mnist", tmp_path, False).class_names[0] == 'number: "0 - zero"'
    assert not tail("eurosat", tmp_path, False).templates
    with pytest.raises(DataError, match=r"split_zhou_SUN397.json is missing.*DATASETS"):
        tail("sun397", tmp_path, False)


def test_a_split_file_of_another_data_set_is_refused(tmp_path: Path) -> None:
    write_coop(tmp_path, "pets", ("abyssinian", "beagle"))
    with pytest.raises(DataError, match=r"pets: expected 37 .*OxfordPets.json \(the first class is 'abyssinian'"):
        BENCHMARKS["x-tail"].load_task("pets", tmp_path, True)


def test_two_protocols_are_not_mixed() -> None:
    for other in ("mtil-11-coop:food", "mtil:dtd", "cifar100-10:cifar100", "cub-pilot:cub"):
        with pytest.raises(ConfigError, match=r"mtil-11.*are of two protocols"):
            task_order(from_dict({"tasks": {"one": "mtil-11:dtd", "two": other}, "data_root": "x"}))
    assert all(benchmark.protocol for benchmark in BENCHMARKS.values() if benchmark.needs_root)


def test_single_tasks_bring_the_options_of_their_benchmark() -> None:
    options: dict[str, Any] = {"tasks": {"one": "mtil-11-5shot:dtd"}, "data_root": "x"}
    assert with_benchmark_options(from_dict(options)).shots == 5
    assert with_benchmark_options(from_dict({**options, "shots": 2})).shots == 2
    options["tasks"]["two"] = "mtil-11:food"
    with pytest.raises(ConfigError, match=r"mtil-11 and mtil-11-5shot have options.*differ in shots.*with --shots"):
        task_order(from_dict(options))
    task_order(from_dict({**options, "shots": 2}))
    named = {"tasks": {"some": {"from": "cifar100-10:cifar100", "classes": ["apple"]}}, "data_root": "x"}
    assert with_benchmark_options(from_dict(named)).split_classes is None, "its steps are written out"


def test_a_template_that_is_given_replaces_those_of_the_tasks(tmp_path: Path) -> None:
    mnist(tmp_path)
    options = {"benchmark": "mtil-11", "sequence": "mnist", "data_root": str(tmp_path), "check_counts": False}
    own, _ = resolve(from_dict({**options, "method": "finetune"}))
    other, _ = resolve(from_dict({**options, "method": "finetune", "template": "a digit {}"}))
    (task,) = load_sequence(own, with_reference=False).tasks
    assert task.prompts(("x {}",)) == ('a photo of the number: "{}".',)
    assert read_templates(str(own.template)) == ("a photo of a {}.",)
    (task,) = load_sequence(other, with_reference=False).tasks
    assert task.prompts(("a digit {}",)) == task.train_prompts(("a digit {}",)) == ("a digit {}",)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"benchmark": "atlas"}, ""),
        ({"benchmark": "atlas", "protocol": "paper", "seed": 3}, ""),
        ({"benchmark": "atlas", "shots": 5, "same_names": "one"}, "shots 5, same names one"),
        ({"benchmark": "atlas", "limit_tasks": 2, "test_per_class": 6}, "limit tasks 2, test per class 6"),
        ({"benchmark": "atlas", "template": "art: {}"}, "template art: {}"),
        ({"benchmark": "atlas-classes-24"}, ""),
        ({"benchmark": "atlas-classes-24", "class_order": "7"}, "class order 7"),
        ({"benchmark": "atlas-styles", "same_names": "one"}, ""),
        ({"benchmark": "atlas-styles", "same_names": "apart"}, "same names apart"),
        ({"benchmark": "x-tail", "shots": 16}, ""),
        ({"tasks": {"a": "atlas:food", "b": "atlas:pets"}}, ""),
        ({"tasks": {"a": "atlas:food"}, "split_classes": "4"}, "split classes 4"),
    ],
)
def test_the_conditions_of_a_run_are_what_its_benchmark_does_not_say(options: dict[str, Any], found: str) -> None:
    resolved, _ = resolve(from_dict(options))
    assert conditions(resolved) == found
    assert conditions(resolve(resolved)[0]) == found


def test_one_order_has_one_name() -> None:
    for sequence in ("I", "S1", ",".join(ORDER_I)):
        assert with_benchmark_options(from_dict({"benchmark": "mtil-11", "sequence": sequence})).sequence == "I"
    assert with_benchmark_options(from_dict({"benchmark": "mtil-11", "sequence": "S2"})).sequence == "S2"
    assert not BENCHMARKS["mtil-8-coop-16shot"].sequences


def test_options_of_a_benchmark_hold_unless_others_are_given() -> None:
    config = with_benchmark_options(from_dict({"benchmark": "x-tail"}))
    assert (config.shots, config.template, config.merges_names) == (16, "a photo of a {}.", False)
    assert with_benchmark_options(from_dict({"benchmark": "x-tail", "shots": 4})).shots == 4
    resolved, _ = resolve(from_dict({"benchmark": "cifar100-10", "method": "finetune"}))
    assert (resolved.split_classes, resolved.template) == ("10", "a bad photo of a {}.")


def test_a_benchmarks_steps_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist(tmp_path)
    tasks = {"digits": "mtil-11:mnist"}
    options = {"tasks": tasks, "data_root": str(tmp_path), "check_counts": False, "split_classes": "all"}
    assert load_sequence(from_dict(options), with_reference=False).names == ["digits"]
    assert not from_dict(options).scores_seen


def test_prepare_finds_or_names_what_torchvision_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sun(tmp_path)
    with pytest.raises(SystemExit):
        main(
            ["data", "prepare", "SUN397", "StanfordCars", "--root", str(tmp_path), "--no-download", "--no-check-counts"]
        )
    printed = capsys.readouterr().out
    assert "2 classes, 8 train, 0 val, 2 test; is there; split: drawn as ZSCL's code does" in printed
    assert "StanfordCars  NOT READY" in printed
    assert "issues/7545" in printed
    main(["data", "prepare", "mtil-11", "--root", str(tmp_path), "--dry-run"])
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_prepare_downloads_through_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "download", lambda self: mnist(tmp_path))
    (outcome,) = prepare(["MNIST"], tmp_path, Options(check_counts=False))
    assert outcome.problem is None
    assert outcome.did == ("downloaded by torchvision",)
    (wrong,) = prepare(["MNIST"], tmp_path, Options())
    assert "mnist: expected 10 classes, 60000 train" in str(wrong.problem)


def test_prepare_finds_what_others_have_put_together(tmp_path: Path) -> None:
    """Of benchmarks whose folders torchvision does not make: checked, or said where to get them."""
    write_coop(tmp_path, "pets", ("abyssinian", "beagle"))
    (tmp_path / COOP_SETS["dtd"].folder).mkdir()
    options = Options(check_counts=False, download=False)
    found = {outcome.name: outcome for outcome in prepare(["x-tail"], tmp_path, options)}
    assert list(found) == ["MNIST" if name == "mnist" else f"x-tail:{name}" for name in BENCHMARKS["x-tail"].tasks]
    assert (found["x-tail:pets"].problem, found["x-tail:pets"].counts) == (
        None, {"classes": 2, "train": 2, "val": 2, "test": 2},
    )  # fmt: skip
    for name in ("aircraft", "dtd"):
        assert "CoOp/blob/main/DATASETS.md" in str(found[f"x-tail:{name}"].problem)
    (tmp_path / "oxford_pets/images/test-1.jpg").unlink()
    (pets,) = prepare(["x-tail:pets"], tmp_path, options)
    assert "image missing" in str(pets.problem)
    for name, where in {"cub-pilot": "LAMDA-PILOT", "tiny-imagenet-5": "tiny-imagenet-200.zip"}.items():
        (outcome,) = prepare([name], tmp_path, options)
        assert where in str(outcome.problem)
    assert [one.name for one in prepare(["cifar100-10"], tmp_path, options)] == ["CIFAR100"]


def test_data_check_reads_whole_data_sets_and_says_what_is_off(tmp_path: Path, tiny_model: str) -> None:
    mnist(tmp_path)
    config = from_dict({"benchmark": "x-tail", "sequence": "mnist", "data_root": str(tmp_path), "model": tiny_model})

    def zero_shot(config: RunConfig) -> ZeroShot:
        assert config.split_classes == "all"
        return ZeroShot("tiny", {"mnist": 57.1}, {"mnist": 50.0}, Fingerprint("a peer", {"mnist": 65.2}, {}))

    report = check(config, quick=False, tolerance=0.5, zero_shot=zero_shot)
    (digits, reference) = report["data_sets"]
    assert reference["ok"]
    assert f"tasso data prepare imagenet --root {tmp_path}" in reference["notes"][0]
    messages = " ".join(problem["message"] for problem in digits["problems"])
    assert "3 train, not 60000" in messages
    assert (
        "zero-shot MTIL accuracy is 57.10, 8.10 points below 65.20 (a peer; 0.50 allowed): other class names"
        in messages
    )
