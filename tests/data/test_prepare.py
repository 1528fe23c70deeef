"""The paper's data: replicas of every original layout prepared, killed, cut off, malformed; downloads; splits."""

from __future__ import annotations

import dataclasses
import errno
import http.server
import inspect
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
from hypothesis import given
from hypothesis import strategies as st

import replicas
from conftest import draw
from tasso.cli import main
from tasso.config import from_dict
from tasso.data import load_sequence
from tasso.data.annotated import read_annotated
from tasso.data.benchmarks import MTIL
from tasso.data.images.decode import decode
from tasso.data.prepare import archives, layouts, sources, unpack
from tasso.data.prepare.annotations import read_record
from tasso.data.prepare.options import Options
from tasso.data.prepare.prepare import Outcome, plan, prepare
from tasso.data.prepare.sources import RECIPES
from tasso.data.prepare.splits import apply_rule
from tasso.data.readers.coop import read_coop_split
from tasso.data.readers.labelled import Listing
from tasso.errors import DataError, install
from tasso.training.learner import learn

LAX = Options(check_archives=False, check_counts=False, download=False, reference_images=0)
LAX_WORDS = ["--no-check-archives", "--no-check-counts", "--no-download"]


def one(root: Path, name: str, options: Options = LAX) -> Outcome:
    [outcome] = prepare([name], root, options)
    return outcome


def document(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / name / RECIPES[name].annotation_file).read_text())
    return found


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with time and content."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def contents(folder: Path) -> dict[str, bytes]:
    """What counts of a prepared data set, without times: archives and the marks that tell their times left out."""
    kept = {path: content for path, (_, content) in tree(folder).items()}
    return {p: c for p, c in kept.items() if not p.startswith("archives") and not p.endswith(".tasso.json")}


# -- every layout --------------------------------------------------------------------------------------------------

NAMES = {
    "fgvc-aircraft": ["A300B4", "Boeing 717", "DC-8"],
    "dtd": ["banded", "blotchy", "zigzagged"],
    "eurosat": ["Annual Crop Land", "Forest", "Herbaceous Vegetation Land", "Highway or Road", "Industrial Buildings",
                "Pasture Land", "Permanent Crop Land", "Residential Buildings", "River", "Sea or Lake"],
    "flowers-102": ["pink primrose", "hard-leaved pocket orchid", "canterbury bells"],
    "food-101": ["apple pie", "baby back ribs", "waffles"],
    "oxford-pets": ["abyssinian", "american bulldog", "yorkshire terrier"],
    "stanford-cars": ["2000 AM General Hummer SUV", "2012 Acura RL Sedan", "2012 smart fortwo Convertible"],
    "ucf-101": ["Apply Eye Makeup", "Handstand Pushups", "Yo Yo"],
    "imagenet": ["n01440764", "n01443537", "projectile"],
}  # fmt: skip
# Images per class for training, validation and test.
PER_CLASS = {
    "fgvc-aircraft": (2, 2, 2), "dtd": (5, 2, 3), "eurosat": (5, 2, 3), "flowers-102": (5, 2, 3), "food-101": (5, 2, 3),
    "oxford-pets": (8, 2, 5), "stanford-cars": (8, 2, 3), "ucf-101": (8, 2, 3), "imagenet": (4, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_layout_becomes_what_a_run_reads(tmp_path: Path, name: str) -> None:
    replicas.write(tmp_path, name)
    outcome = one(tmp_path, name)
    assert outcome.problem is None
    task = read_annotated(tmp_path, name, RECIPES[name].data_set.prefix)
    assert list(task.class_names) == NAMES[name]
    paths: set[str] = set()
    for split, count in zip(("train", "val", "test"), PER_CLASS[name], strict=True):
        images = getattr(task, split)
        assert Counter(images.labels.tolist()) == dict.fromkeys(range(len(NAMES[name])) if count else [], count)
        paths |= set(images.keys)
        # The replicas' images have the colour of their class: labels and pixels belong together.
        for place, label in enumerate(images.labels.tolist()):
            first = 1 if name == "flowers-102" or name == "oxford-pets" else 0
            mean = decode(images, place).reshape(-1, 3).mean(0)
            other = np.asarray(draw(label + first, 0)).reshape(-1, 3).mean(0)
            assert np.abs(mean - other).max() < 20
    assert len(paths) == sum(PER_CLASS[name]) * len(NAMES[name]), "every image is in exactly one set"
    assert not [path.name for path in (tmp_path / name).iterdir() if path.name.startswith((".unp", ".old"))]


def test_the_benchmark_reads_what_was_prepared(tmp_path: Path, tiny_model: str) -> None:
    for name in RECIPES:
        replicas.write(tmp_path, name)
    main(["data", "prepare", "all", "--root", str(tmp_path), *LAX_WORDS])
    options: dict[str, Any] = {
        "benchmark": "mtil", "data_root": str(tmp_path), "check_counts": False, "model": tiny_model, "device": "cpu",
    }  # fmt: skip
    sequence = load_sequence(from_dict(options))
    assert sequence.names == list(MTIL.tasks)
    assert sequence.reference is not None
    assert len(sequence.reference) == 12
    small = {"sequence": "ucf-101,stanford-cars", "steps": 2, "batch_size": 8, "reference_batch_size": 8}
    method = {"name": "tasso", "rank": 6}
    assert learn(from_dict({**options, **small, "method": method, "out": str(tmp_path / "run")}))["finished"]


def test_sources_are_torchvisions() -> None:
    modules = {
        "fgvc-aircraft": "FGVCAircraft", "dtd": "DTD", "eurosat": "EuroSAT", "flowers-102": "Flowers102",
        "food-101": "Food101", "oxford-pets": "OxfordIIITPet", "imagenet": "ImageNet",
    }  # fmt: skip
    for name, cls in modules.items():
        module = inspect.getmodule(getattr(torchvision.datasets, cls))
        assert module is not None
        source = inspect.getsource(module)
        for archive in RECIPES[name].archives:
            assert archive.file in source
            for known in (archive.url and archive.url.rpartition("/")[0], archive.md5):
                assert known is None or known in source, f"{name}: {known}"
    assert {name for name, recipe in RECIPES.items() if not all(a.url for a in recipe.archives)} == {
        "stanford-cars", "ucf-101", "imagenet",
    }  # fmt: skip
    assert list(RECIPES) == [*MTIL.tasks, MTIL.reference.name]


def test_two_of_imagenets_names_are_told_apart() -> None:
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    twice = [name for name, count in Counter(IMAGENET_CLASSNAMES).items() if count > 1]
    assert sorted(twice) == ["missile", "sunglasses"]
    assert not set(layouts.IMAGENET_NAMES.values()) & set(IMAGENET_CLASSNAMES)
    assert len(set(layouts.flower_names())) == 102


# -- splits --------------------------------------------------------------------------------------------------------

sizes = st.lists(st.integers(3, 40), min_size=1, max_size=6)


def listing(counts: list[int]) -> Listing:
    items = [(f"{label}/{number}.jpg", label) for label, count in enumerate(counts) for number in range(count)]
    return Listing(tuple(f"class {label}" for label in range(len(counts))), items, test=[("test.jpg", 0)])


@given(sizes, st.integers(0, 2**40), st.randoms())
def test_splits_are_stratified_whole_and_seeded(counts: list[int], seed: int, shuffle: random.Random) -> None:
    whole = listing(counts)
    drawn = apply_rule("resplit", dataclasses.replace(whole, test=[]), seed)
    assert sorted([*drawn.train, *drawn.val, *drawn.test]) == sorted(whole.train)
    for label, count in enumerate(counts):
        shares = [sum(item[1] == label for item in part) for part in (drawn.train, drawn.val, drawn.test)]
        assert shares == [round(0.5 * count), round(0.2 * count), count - round(0.5 * count) - round(0.2 * count)]
    held = apply_rule("hold-out", whole, seed)
    assert sorted([*held.train, *held.val]) == sorted(whole.train)
    assert held.test == whole.test
    assert Counter(label for _, label in held.val) == {
        label: round(0.2 * count) for label, count in enumerate(counts) if round(0.2 * count)
    }
    mixed = list(whole.train)
    shuffle.shuffle(mixed)
    assert apply_rule("hold-out", dataclasses.replace(whole, train=mixed), seed) == held, (
        "the order of a list is no matter"
    )
    assert apply_rule("official", whole, seed) is whole


def test_another_seed_is_another_split() -> None:
    whole = listing([30, 30])
    assert apply_rule("resplit", whole, 1).train != apply_rule("resplit", whole, 2).train


def test_sizes_of_the_paper_follow_from_the_rules() -> None:
    """Data sets whose classes all have the same size."""
    for name, classes, each in (("dtd", 47, 120), ("eurosat", 10, None), ("food-101", 101, 1000)):
        counts = [each] * classes if each else [3000, 3000, 3000, 2500, 2500, 2000, 2500, 3000, 2500, 3000]
        drawn = apply_rule("resplit", dataclasses.replace(listing(counts), test=[]), 0)
        data_set = RECIPES[name].data_set
        assert (len(drawn.train), len(drawn.test)) == (data_set.train, data_set.test)


# -- CoOp's files --------------------------------------------------------------------------------------------------


def coop(names: list[str], prefix: str = "") -> dict[str, Any]:
    """Images of the replica of ucf-101 in a split of their own."""
    folders = ["Apply_Eye_Makeup", "Handstand_Pushups", "Yo_Yo"]
    entries = [
        [f"{prefix}{folder}/v_{action}_g{number:02d}_c01.jpg", label, names[label]]
        for label, (folder, action) in enumerate(zip(folders, replicas.ACTIONS, strict=True))
        for number in range(13)
    ]
    return {"train": entries[::3], "val": entries[1::3], "test": entries[2::3]}


@pytest.mark.parametrize(("style", "first"), [("spaces", "Apply Eye Makeup"), ("coop", "Apply_Eye_Makeup")])
def test_a_coop_split_is_used_and_makes_lists_needless(tmp_path: Path, style: Any, first: str) -> None:
    folder = replicas.write(tmp_path, "ucf-101")
    (folder / "archives" / "UCF101TrainTestSplits-RecognitionTask.zip").unlink()
    assert "UCF101TrainTestSplits-RecognitionTask.zip" in (one(tmp_path, "ucf-101").problem or "")
    split = coop(["Apply_Eye_Makeup", "Handstand_Pushups", "Yo_Yo"])
    (folder / "split_zhou_UCF101.json").write_text(json.dumps(split))
    outcome = one(tmp_path, "ucf-101", dataclasses.replace(LAX, names_style=style))
    assert (outcome.problem, outcome.split) == (None, "coop")
    found = document(tmp_path, "ucf-101")
    assert found["class_names"][0] == first
    assert found["data"] == {part: [entry[:2] for entry in entries] for part, entries in split.items()}
    assert not (folder / "lists").exists()


def test_every_coop_split_has_its_place() -> None:
    assert [name for name, recipe in RECIPES.items() if not recipe.coop_split] == ["fgvc-aircraft", "imagenet"]


BAD_SPLITS: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "not valid JSON"),
    "no sets": ({"train": []}, "lists no images"),
    "no list": ({"train": {}, "val": [], "test": []}, "expected the lists"),
    "no list to test": ({"train": [], "val": [], "test": 3}, "test: expected a list"),
    "short": ({"train": [["a.jpg", 0]], "val": [], "test": []}, r"train\[0\]: expected \[path, label, class name\]"),
    "negative": ({"train": [["a.jpg", -1, "a"]], "val": [], "test": []}, r"train\[0\]"),
    "true": ({"train": [["a.jpg", True, "a"]], "val": [], "test": []}, r"train\[0\]"),
    "no name": ({"train": [["a.jpg", 0, " "]], "val": [], "test": []}, r"train\[0\]"),
    "two names": (
        {"train": [["a.jpg", 0, "a"]], "val": [["b.jpg", 0, "b"]], "test": []},
        "label 0 is 'b', but was",
    ),
    "a gap": ({"train": [["a.jpg", 0, "a"], ["b.jpg", 2, "b"]], "val": [], "test": []}, "no image has label 1"),
}


@pytest.mark.parametrize("case", BAD_SPLITS)
def test_bad_coop_splits_are_named(tmp_path: Path, case: str) -> None:
    content, message = BAD_SPLITS[case]
    file = tmp_path / "split_zhou_UCF101.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=message) as caught:
        read_coop_split(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(("prefix", "message"), [("../", "does not lie in the images folder"), ("x/", "image missing")])
def test_a_coop_split_with_strange_paths_is_not_used(tmp_path: Path, prefix: str, message: str) -> None:
    folder = replicas.write(tmp_path, "ucf-101")
    (folder / "split_zhou_UCF101.json").write_text(json.dumps(coop(["a", "b", "c"], prefix)))
    problem = one(tmp_path, "ucf-101").problem
    assert problem is not None
    assert message in problem
    assert ".unpacking" not in problem
    assert not (folder / "ucf101_annotations.json").exists()


# -- the reference images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 12, 100])
def test_the_reference_subset_is_the_one_that_a_run_would_draw(tmp_path: Path, count: int) -> None:
    replicas.write(tmp_path / "all", "imagenet")
    replicas.write(tmp_path / "part", "imagenet")
    assert one(tmp_path / "all", "imagenet").problem is None
    part = dataclasses.replace(LAX, reference_images=count)
    assert one(tmp_path / "part", "imagenet", part).problem is None
    options = {"benchmark": "mtil", "check_counts": False, "reference_images": count}
    keys, labels = [], []
    for root in ("all", "part"):
        images, names = MTIL.load_reference(tmp_path / root, False)
        from tasso.data.catalogue import subset

        chosen = subset(images, from_dict(options))
        keys.append(chosen.keys)
        labels.append(chosen.labels.tolist())
        assert list(names) == NAMES["imagenet"]
    assert keys[0] == keys[1]
    assert labels[0] == labels[1]
    assert len(list((tmp_path / "part" / "imagenet").rglob("*.JPEG"))) == min(count, 12)


def test_another_number_of_reference_images_is_unpacked_again(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "imagenet")
    for count in (3, 7):
        outcome = one(tmp_path, "imagenet", dataclasses.replace(LAX, reference_images=count))
        assert outcome.counts is not None
        assert outcome.counts["train"] == len(list(folder.rglob("*.JPEG"))) == count


def test_an_unpacked_imagenet_can_be_linked(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "train"
    for synset in replicas.SYNSETS:
        (elsewhere / synset).mkdir(parents=True)
        (elsewhere / synset / f"{synset}_1.JPEG").write_bytes(replicas.image(0, 1))
    (tmp_path / "root" / "imagenet" / "images").mkdir(parents=True)
    (tmp_path / "root" / "imagenet" / "images" / "train").symlink_to(elsewhere)
    before = tree(tmp_path / "elsewhere")
    assert one(tmp_path / "root", "imagenet").problem is None
    assert document(tmp_path / "root", "imagenet")["data"]["train"][2] == ["train/n04008634/n04008634_1.JPEG", 2]
    assert tree(tmp_path / "elsewhere") == before


# -- again, with something changed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_second_call_does_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = replicas.write(tmp_path, name)
    one(tmp_path, name)
    before = tree(folder)
    monkeypatch.setattr(torchvision.datasets.utils, "calculate_md5", None)  # not even a checksum is computed
    outcome = one(tmp_path, name)
    assert (outcome.problem, outcome.did) == (None, ("nothing to do",))
    assert tree(folder) == before


def test_archives_are_needed_only_once(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    one(tmp_path, "dtd")
    shutil.rmtree(folder / "archives")
    assert one(tmp_path, "dtd").did == ("nothing to do",)


def test_another_archive_is_unpacked_again(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    one(tmp_path, "dtd")
    file = folder / "archives" / "dtd-r1.0.1.tar.gz"
    os.utime(file, (1, 1))  # touched, but the same
    assert one(tmp_path, "dtd").did == ("nothing to do",)
    files = {name: content for name, content in replicas.dtd_files().items() if "zigzagged" not in name}
    files["dtd/labels/train1.txt"] = replicas.text("banded/banded_0001.jpg", "blotchy/blotchy_0001.jpg")
    replicas.tar(file, files)
    outcome = one(tmp_path, "dtd")
    assert outcome.counts == {"classes": 2, "train": 10, "val": 4, "test": 6}
    assert not (folder / "images" / "zigzagged").exists()


def test_the_authors_own_annotations_are_kept(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    given = {"data": {"train": [["banded/banded_0000.jpg", 0]], "val": [], "test": []}, "class_names": ["stripes"]}
    (folder / "dtd_annotations.json").write_text(json.dumps(given))
    outcome = one(tmp_path, "dtd")
    assert (outcome.problem, outcome.split) == (None, "as given")
    assert document(tmp_path, "dtd") == given
    assert not read_record(folder)
    assert one(tmp_path, "dtd", dataclasses.replace(LAX, overwrite=True)).split == "drawn"
    assert document(tmp_path, "dtd")["class_names"] == NAMES["dtd"]
    assert one(tmp_path, "dtd").did == ("nothing to do",)


def test_own_annotations_without_their_images_are_not_ready(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    given = {"data": {"train": [["banded/none.jpg", 0]]}, "class_names": ["stripes"]}
    (folder / "dtd_annotations.json").write_text(json.dumps(given))
    assert f"image missing: {folder / 'images' / 'banded' / 'none.jpg'}" in (one(tmp_path, "dtd").problem or "")


def test_a_zip_in_the_authors_layout_is_left_alone(tmp_path: Path) -> None:
    given = {"data": {"train": [["a.jpg", 0]]}, "class_names": ["stripes"]}
    replicas.zipped(tmp_path / "dtd.zip", {"dtd/dtd_annotations.json": json.dumps(given).encode()})
    assert one(tmp_path, "dtd").split == "as given"
    assert plan(["dtd"], tmp_path, LAX) == [f"dtd: {tmp_path / 'dtd.zip'} is there already"]
    assert not (tmp_path / "dtd").exists()


def test_archives_from_another_folder(tmp_path: Path) -> None:
    replicas.write(tmp_path / "shelf", "dtd")
    shelf = tmp_path / "shelf" / "dtd" / "archives"
    before = tree(shelf)
    outcome = one(tmp_path / "root", "dtd", dataclasses.replace(LAX, archives=shelf))
    assert outcome.problem is None
    assert tree(shelf) == before


def test_two_at_once_do_it_once(tmp_path: Path) -> None:
    replicas.write(tmp_path, "dtd")
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(one(tmp_path, "dtd"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.problem for outcome in outcomes] == [None, None]
    assert sorted(len(outcome.did) for outcome in outcomes) == [1, 2], "the second finds it done"


# -- malformed -----------------------------------------------------------------------------------------------------


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    assert set(names) <= set(files)
    return {name: content for name, content in files.items() if name not in names}


AIR = "fgvc-aircraft-2013b/data"
Bad = tuple[str, str, Callable[[Path], None], str]


def rewritten(name: str, file: str, files: Callable[[], dict[str, bytes]]) -> Callable[[Path], None]:
    def write(into: Path) -> None:
        (replicas.zipped if file.endswith(".zip") else replicas.tar)(into / file, files())

    return write


def bad(name: str, file: str, files: Callable[[], dict[str, bytes]], message: str) -> tuple[str, Any, str]:
    return name, rewritten(name, file, files), message


def append(files: dict[str, bytes], name: str, *lines: str) -> dict[str, bytes]:
    return {**files, name: files[name] + replicas.text(*lines)}


MALFORMED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "aircraft: no list of variants": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: without(replicas.aircraft_files(), f"{AIR}/variants.txt"), "variants.txt: no such file"),
    "aircraft: no test list": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: without(replicas.aircraft_files(), f"{AIR}/images_variant_test.txt"),
        "images_variant_test.txt: no such file"),
    "aircraft: an empty list": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: {**replicas.aircraft_files(), f"{AIR}/images_variant_val.txt": b""}, "the list is empty"),
    "aircraft: an unknown variant": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: append(replicas.aircraft_files(), f"{AIR}/images_variant_train.txt", "0000001 Zeppelin"),
        "images_variant_train.txt: line 7: 'Zeppelin' is unknown"),
    "aircraft: listed but absent": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: without(replicas.aircraft_files(), f"{AIR}/images/0000004.jpg"), "0000004.jpg"),
    "aircraft: a list that is no text": bad(
        "fgvc-aircraft", "fgvc-aircraft-2013b.tar.gz",
        lambda: {**replicas.aircraft_files(), f"{AIR}/variants.txt": b"\xff\xfe\x00"}, "not a readable text file"),
    "dtd: a folder too many": bad(
        "dtd", "dtd-r1.0.1.tar.gz",
        lambda: {**replicas.dtd_files(), "dtd/images/plaid/plaid_1.jpg": replicas.image(0, 0)},
        "the folder plaid is no class"),
    "dtd: a folder too few": bad(
        "dtd", "dtd-r1.0.1.tar.gz",
        lambda: {n: c for n, c in replicas.dtd_files().items() if "images/banded" not in n},
        "the folder of the class banded is missing"),
    "dtd: an empty class": bad(
        "dtd", "dtd-r1.0.1.tar.gz",
        lambda: {**{n: c for n, c in replicas.dtd_files().items() if "images/banded" not in n},
                 "dtd/images/banded/thumbs.db": b""},
        "no images in this folder"),
    "dtd: another archive": bad(
        "dtd", "dtd-r1.0.1.tar.gz", lambda: {"something/else.jpg": b""}, "nothing in it begins with dtd/images/"),
    "eurosat: a folder too many": bad(
        "eurosat", "EuroSAT.zip",
        lambda: replicas.folders("2750", [*replicas.EUROSAT, "Desert"], 3), "the folder Desert is no class"),
    "eurosat: a class missing": bad(
        "eurosat", "EuroSAT.zip",
        lambda: replicas.folders("2750", replicas.EUROSAT[:-1], 3), "the class SeaLake is missing"),
    "food: a folder too many": bad(
        "food-101", "food-101.tar.gz",
        lambda: {**replicas.food_files(), "food-101/images/soap/1.jpg": replicas.image(0, 0)},
        "the folder soap is no class"),
    "flowers: no labels": (
        "flowers-102", lambda into: (into / "imagelabels.mat").write_bytes(replicas.mat(other=1)) and None,
        "has no variable 'labels'"),
    "flowers: not MATLAB's format": (
        "flowers-102", lambda into: (into / "imagelabels.mat").write_bytes(b"PNG") and None,
        "not a readable MATLAB file"),
    "flowers: a label too high": (
        "flowers-102", lambda into: (into / "imagelabels.mat").write_bytes(replicas.mat(labels=[[1, 103]])) and None,
        "image 2 has label 103"),
    "flowers: more labels than images": (
        "flowers-102",
        lambda into: (into / "imagelabels.mat").write_bytes(replicas.mat(labels=[[1] * 31])) and None,
        "image_00031.jpg"),
    "pets: a line cut off": bad(
        "oxford-pets", "annotations.tar.gz",
        lambda: append(replicas.pets_files()[1], "annotations/trainval.txt", "Abyssinian_3"),
        "trainval.txt: line 31: expected"),
    "pets: two breeds with one label": bad(
        "oxford-pets", "annotations.tar.gz",
        lambda: append(replicas.pets_files()[1], "annotations/test.txt", "Beagle_3 1 1 1"),
        "label 1 is 'beagle' here, 'abyssinian' before"),
    "pets: a label left out": bad(
        "oxford-pets", "annotations.tar.gz",
        lambda: append(replicas.pets_files()[1], "annotations/test.txt", "Beagle_3 9 1 1"), "leave out a label"),
    "pets: no test list": bad(
        "oxford-pets", "annotations.tar.gz",
        lambda: without(replicas.pets_files()[1], "annotations/test.txt"), "test.txt: no such file"),
    "cars: test lists without labels": (
        "stanford-cars",
        lambda into: (into / "cars_test_annos_withlabels.mat").write_bytes(
            replicas.cars_annotations(9, labelled=False)) and None,
        "expected 'fname' and 'class'"),
    "cars: an image that is not there": (
        "stanford-cars",
        lambda into: (into / "cars_test_annos_withlabels.mat").write_bytes(replicas.cars_annotations(10)) and None,
        "cars_test/00010.jpg"),
    "cars: a devkit without names": bad(
        "stanford-cars", "car_devkit.tgz",
        lambda: {"devkit/cars_train_annos.mat": replicas.cars_annotations(30)}, "cars_meta.mat is missing"),
    "ucf: an unknown class": bad(
        "ucf-101", "UCF101TrainTestSplits-RecognitionTask.zip",
        lambda: {"ucfTrainTestlist/classInd.txt": b"1 ApplyEyeMakeup\n",
                 "ucfTrainTestlist/trainlist01.txt": b"Juggling/v_Juggling_g01_c01.avi 2\n"},
        "trainlist01.txt: line 1: 'Juggling' is unknown"),
    "ucf: classes not counted": bad(
        "ucf-101", "UCF101TrainTestSplits-RecognitionTask.zip",
        lambda: {"ucfTrainTestlist/classInd.txt": b"ApplyEyeMakeup\n"}, "classInd.txt: line 1: expected"),
    "ucf: a frame is missing": bad(
        "ucf-101", "UCF-101-midframes.zip",
        lambda: without(replicas.frames(), "UCF-101-midframes/Yo_Yo/v_YoYo_g03_c01.jpg"), "v_YoYo_g03_c01.jpg"),
    "imagenet: images at the top": (
        "imagenet", lambda into: replicas.tar(into / "ILSVRC2012_img_train.tar", {"a.JPEG": b""}, "w"),
        "expected one tar per class"),
    "imagenet: no tar inside": (
        "imagenet", lambda into: replicas.tar(into / "ILSVRC2012_img_train.tar", {"n0.tar": b"nothing"}, "w"),
        "damaged or cut off"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_data_is_named_and_nothing_is_annotated(tmp_path: Path, case: str) -> None:
    name, spoil, message = MALFORMED[case]
    folder = replicas.write(tmp_path, name)
    spoil(folder / "archives")
    problem = one(tmp_path, name).problem
    assert problem is not None
    assert message in problem
    assert str(tmp_path) in problem
    assert not (folder / RECIPES[name].annotation_file).exists()
    assert not list(folder.glob(".unp*"))


def test_counts_are_checked_against_the_paper(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    problem = one(tmp_path, "dtd", dataclasses.replace(LAX, check_counts=True)).problem
    assert problem == (
        "dtd: expected 47 classes, 2820 train, 1692 test, found 3 classes, 15 train, 9 test (the first class is "
        "'banded': another data set?). Use --no-check-counts to go on with these"
    )
    assert not (folder / "dtd_annotations.json").exists()
    replicas.write(tmp_path, "imagenet")
    checked = one(tmp_path, "imagenet", dataclasses.replace(LAX, check_counts=True)).problem
    assert "imagenet: expected 1000 classes, found 3 classes" in (checked or "")
    with pytest.raises(DataError, match=r"found 0 classes, 0 train, 0 test\. Use"):  # such as empty labels of flowers
        RECIPES["dtd"].data_set.check(Listing((), []).task(tmp_path))


@pytest.mark.parametrize("name", RECIPES)
def test_archives_cut_off_anywhere_are_noticed(tmp_path: Path, name: str) -> None:
    folder = replicas.write(tmp_path, name)
    [*_, file] = [path for path in sorted((folder / "archives").iterdir()) if path.suffix != ".mat"]
    whole = file.read_bytes()
    # A plain tar ends in zeros, of which some may be missing.
    needed = len(whole.rstrip(b"\0")) if name == "imagenet" else len(whole)
    for cut in (0, 1, 7, len(whole) // 3, len(whole) // 2, len(whole) - len(whole) // 20, len(whole) - 9):
        file.write_bytes(whole[:cut])
        problem = one(tmp_path, name).problem
        if cut < needed:
            assert problem, f"cut at {cut} of {len(whole)}"
            assert "damaged or cut off" in problem
            assert sorted(path.name for path in folder.iterdir()) == [".lock", "archives"]
    file.write_bytes(whole)
    assert one(tmp_path, name).problem is None


def test_a_tar_that_ends_between_two_members_is_not_whole(tmp_path: Path) -> None:
    """tarfile itself does not notice."""
    file = tmp_path / "plain.tar"
    replicas.tar(file, {f"a/{number}.jpg": b"x" * 700 for number in range(4)}, "w")
    content = file.read_bytes()
    file.write_bytes(content[: 2 * (512 + 1024)])
    with tarfile.open(file) as opened:
        assert len(opened.getnames()) == 2
    with pytest.raises(DataError, match="ends in the middle"):
        unpack.unpack(file, {"a/": "images/"}, tmp_path / "out")


def test_imagenet_without_its_last_class_is_not_whole(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "imagenet")
    file = folder / "archives" / "ILSVRC2012_img_train.tar"
    with tarfile.open(file) as opened:
        place = opened.getmembers()[-1].offset
    file.write_bytes(file.read_bytes()[:place])
    assert "its end is missing" in (one(tmp_path, "imagenet").problem or "")


@pytest.mark.parametrize("flipped", [40, -30])
def test_a_damaged_archive_is_noticed(tmp_path: Path, flipped: int) -> None:
    folder = replicas.write(tmp_path, "dtd")
    file = folder / "archives" / "dtd-r1.0.1.tar.gz"
    content = bytearray(file.read_bytes())
    content[flipped] ^= 0xFF
    file.write_bytes(content)
    assert "damaged or cut off" in (one(tmp_path, "dtd").problem or "")
    assert not (folder / "images").exists()


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    problem = one(tmp_path, "dtd", dataclasses.replace(LAX, check_archives=True)).problem or ""
    assert "not fff73e5086ae6bdbea199a49dfb8a4c1" in problem
    assert "--no-check-archives" in problem
    assert not (folder / "images").exists()


# -- hostile archives ----------------------------------------------------------------------------------------------


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    content = b"evil" if kind == tarfile.REGTYPE else b""
    info.size = len(content)
    return info, content


HOSTILE = {
    "up": member("dtd/images/../../../../evil.jpg"),
    "up at once": member("../evil.jpg"),
    "absolute": member("/tmp/evil-of-tasso.jpg"),
    "a drive": member("C:/evil.jpg"),
    "backslashes": member("dtd\\..\\..\\evil.jpg"),
    "a link": member("dtd/images/banded", tarfile.SYMTYPE, "/tmp"),
    "a link inside": member("dtd/images/banded/link.jpg", tarfile.SYMTYPE, "banded_0000.jpg"),
    "a hard link": member("dtd/images/banded/link.jpg", tarfile.LNKTYPE, "../../../../etc/passwd"),
    "a device": member("dtd/images/banded/null.jpg", tarfile.CHRTYPE),
    "a pipe": member("dtd/images/banded/pipe.jpg", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_tars_that_lead_out_are_refused(tmp_path: Path, case: str) -> None:
    folder = replicas.write(tmp_path / "root", "dtd")
    file = folder / "archives" / "dtd-r1.0.1.tar.gz"
    info, content = HOSTILE[case]
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(info, io.BytesIO(content))
        for name, data in replicas.dtd_files().items():
            inside = tarfile.TarInfo(name)
            inside.size = len(data)
            archive.addfile(inside, io.BytesIO(data))
    problem = one(tmp_path / "root", "dtd").problem or ""
    assert str(file) in problem
    assert "leads out of the folder" in problem or "not unpacked" in problem
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "archives"]
    assert not list(tmp_path.rglob("evil*"))
    assert not Path("/tmp/evil-of-tasso.jpg").exists()


@pytest.mark.parametrize("case", ["up", "link", "password"])
def test_zips_that_lead_out_are_refused(tmp_path: Path, case: str) -> None:
    folder = replicas.write(tmp_path / "root", "eurosat")
    file = folder / "archives" / "EuroSAT.zip"
    entry = zipfile.ZipInfo("../evil.jpg" if case == "up" else "2750/Forest/link.jpg")
    if case == "link":
        entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(entry, "/etc/passwd")
    if case == "password":
        content = bytearray(file.read_bytes())
        place = content.rindex(b"PK\x01\x02")
        content[place + 8] |= 1  # says that it is encrypted
        file.write_bytes(content)
    problem = one(tmp_path / "root", "eurosat").problem or ""
    words = {"up": "leads out of the folder", "link": "archives with links", "password": "encrypted"}
    assert words[case] in problem
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "archives"]
    assert not list(tmp_path.rglob("evil*"))


# -- full disks and kills ------------------------------------------------------------------------------------------


class FullDisk(io.RawIOBase):
    """A file that takes some bytes, then none."""

    def __init__(self, room: list[int]) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.room[0] -= len(data)
        if self.room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


@pytest.mark.parametrize("name", ["dtd", "eurosat", "flowers-102", "imagenet"])
def test_a_full_disk_leaves_nothing_half_unpacked(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = replicas.write(tmp_path, name)
    room = [2000]
    monkeypatch.setattr(unpack, "open_new", lambda target: FullDisk(room))
    problem = one(tmp_path, name).problem or ""
    assert "No space left on device" in problem
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "archives"]
    monkeypatch.undo()
    assert one(tmp_path, name).problem is None


# A child that dies by a real kill -9 just before its n-th call of a function. It forks for each place, so that
# libraries are imported once.
KILLED = """
import os, signal, sys
from pathlib import Path
from tasso.data.prepare import annotations, prepare, trees, unpack
from tasso.data.prepare.options import Options

def dies_at(module, name, number):
    real, calls = getattr(module, name), [0]
    def call(*args, **kwargs):
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    setattr(module, name, call)

for place in sys.argv[2:]:
    module, name, number = place.split("-")
    child = os.fork()
    if not child:
        dies_at(globals()[module], name, int(number))
        root = Path(sys.argv[1]) / place
        prepare.prepare(["ucf-101"], root, Options(check_archives=False, check_counts=False, download=False))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
PLACES = [
    "unpack-open_new-1", "unpack-open_new-20", "unpack-open_new-41", "trees-write_text-1", "trees-put_in_place-1",
    "trees-put_in_place-2", "prepare-annotate-1", "annotations-check_text-1", "annotations-write_text-1",
    "annotations-write_text-2",
]  # fmt: skip


@pytest.mark.slow
def test_killed_at_any_place_the_next_call_ends_the_same(tmp_path: Path) -> None:
    replicas.write(tmp_path / "whole", "ucf-101")
    one(tmp_path / "whole", "ucf-101")
    expected = contents(tmp_path / "whole" / "ucf-101")
    for place in PLACES:
        replicas.write(tmp_path / place, "ucf-101")
    words = [sys.executable, "-c", KILLED, str(tmp_path), *PLACES]
    child = subprocess.run(words, check=True, capture_output=True, text=True)
    assert child.stdout.split() == [str(-signal.SIGKILL)] * len(PLACES), child.stderr
    for place in PLACES:
        folder = tmp_path / place / "ucf-101"
        images = list((folder / "images").rglob("*.jpg"))
        assert len(images) in (0, 39), f"{place}: half unpacked"
        assert one(tmp_path / place, "ucf-101").problem is None
        assert contents(folder) == expected, place
        assert one(tmp_path / place, "ucf-101").did == ("nothing to do",)


def test_killed_while_it_replaces_what_was_there(tmp_path: Path) -> None:
    """The annotation file of before is still known as one of ours."""
    folder = replicas.write(tmp_path, "dtd")
    one(tmp_path, "dtd")
    old = (folder / "dtd_annotations.json").read_text()
    one(tmp_path, "dtd", dataclasses.replace(LAX, split_seed=7))
    assert (folder / "dtd_annotations.json").read_text() != old
    (folder / "dtd_annotations.json").write_text(old)  # killed after the record, before the file
    outcome = one(tmp_path, "dtd", dataclasses.replace(LAX, split_seed=7))
    assert outcome.did == ("wrote dtd_annotations.json",)


def test_what_kills_leave_behind_is_removed(tmp_path: Path) -> None:
    folder = replicas.write(tmp_path, "dtd")
    for left in (".unpacking-1/images", ".old-images-1", "archives/.downloading-dtd-r1.0.1.tar.gz"):
        (folder / left).mkdir(parents=True)
        (folder / left / "half.jpg").write_bytes(b"half")
    (folder / ".old-link").symlink_to(tmp_path)
    assert one(tmp_path, "dtd").problem is None
    left = {".lock", "archives", "dtd_annotations.json", "images", "lists", "prepared.json"}
    assert {path.name for path in folder.iterdir()} == left
    assert [path.name for path in (folder / "archives").iterdir()] == ["dtd-r1.0.1.tar.gz"]


# -- downloads -----------------------------------------------------------------------------------------------------


class Shelf(http.server.BaseHTTPRequestHandler):
    """A stand-in for the data sets' servers."""

    files: dict[str, bytes]
    asked: list[str]
    cut: int | None

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        content = self.files.get(name)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.asked.append(name)
        self.wfile.write(content[: self.cut])

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Shelf]]:
    """A server with the replicas of dtd and flowers; their recipes have its address and the right checksums."""
    handler = type("Handler", (Shelf,), {"files": {}, "asked": [], "cut": None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("dtd", "flowers-102"):
        into = replicas.write(tmp_path / "server", name) / "archives"
        recipe = RECIPES[name]
        local = []
        for archive in recipe.archives:
            handler.files[archive.file] = (into / archive.file).read_bytes()
            md5 = archives.identify(into / archive.file).md5
            url = f"http://127.0.0.1:{server.server_port}/data/{archive.file}"
            local.append(dataclasses.replace(archive, url=url, md5=md5))
        monkeypatch.setitem(sources.RECIPES, name, dataclasses.replace(recipe, archives=tuple(local)))
    yield handler
    server.shutdown()
    server.server_close()


ONLINE = dataclasses.replace(LAX, download=True, check_archives=True)


@pytest.mark.parametrize("name", ["dtd", "flowers-102"])
def test_downloads_go_through_torchvision_and_happen_once(tmp_path: Path, shelf: type[Shelf], name: str) -> None:
    outcome = one(tmp_path / "root", name, ONLINE)
    assert outcome.problem is None
    files = [archive.file for archive in RECIPES[name].archives]
    assert outcome.did[: len(files)] == tuple(f"downloaded {file}" for file in files)
    assert set(shelf.asked) == set(files)
    shelf.asked.clear()
    assert one(tmp_path / "root", name, ONLINE).did == ("nothing to do",)
    assert shelf.asked == []


def test_a_server_without_the_file(tmp_path: Path, shelf: type[Shelf]) -> None:
    del shelf.files["dtd-r1.0.1.tar.gz"]
    problem = one(tmp_path, "dtd", ONLINE).problem or ""
    assert "404" in problem
    assert f"put it into {tmp_path / 'dtd' / 'archives'}" in problem
    assert not list((tmp_path / "dtd" / "archives").iterdir())


def test_all_files_that_a_server_does_not_have_are_named(tmp_path: Path, shelf: type[Shelf]) -> None:
    files = [archive.file for archive in RECIPES["flowers-102"].archives]
    shelf.files.clear()
    problem = (one(tmp_path, "flowers-102", ONLINE).problem or "").splitlines()
    assert [line.split()[0] for line in problem[:2]] == files, "why"
    assert [line.split()[1] for line in problem[2:4]] == files, "what to do"


@pytest.mark.parametrize("checksum", [True, False])
def test_a_download_that_is_cut_off_is_not_kept(
    tmp_path: Path, shelf: type[Shelf], monkeypatch: pytest.MonkeyPatch, checksum: bool
) -> None:
    if not checksum:  # as for fgvc-aircraft
        recipe = RECIPES["dtd"]
        plain = tuple(dataclasses.replace(archive, md5=None) for archive in recipe.archives)
        monkeypatch.setitem(sources.RECIPES, "dtd", dataclasses.replace(recipe, archives=plain))
    shelf.cut = 3000
    assert one(tmp_path, "dtd", ONLINE).problem is not None
    assert not list((tmp_path / "dtd" / "archives").iterdir()), "it would be taken for the whole file"
    shelf.cut = None
    assert one(tmp_path, "dtd", ONLINE).problem is None


def test_nothing_is_asked_for_without_leave(tmp_path: Path, shelf: type[Shelf]) -> None:
    problem = one(tmp_path, "dtd", dataclasses.replace(ONLINE, download=False)).problem or ""
    assert "Get dtd-r1.0.1.tar.gz (MD5 " in problem
    assert shelf.asked == []


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_says_exactly_what_to_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replicas.write(tmp_path, "dtd")
    with pytest.raises(SystemExit) as stop:
        main(["data", "prepare", "stanford-cars", "dtd", "--root", str(tmp_path), *LAX_WORDS])
    assert stop.value.code == 2
    printed = capsys.readouterr().out
    for archive in RECIPES["stanford-cars"].archives:
        assert f"Get {archive.file} (MD5 {archive.md5})" in printed
    assert str(tmp_path / "stanford-cars" / "archives") in printed
    assert "split_zhou_StanfordCars.json" in printed
    assert "wrote dtd_annotations.json" in printed, "one data set does not stop another"


def test_dry_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replicas.write(tmp_path, "dtd")
    before = tree(tmp_path)
    main(["data", "prepare", "all", "--root", str(tmp_path), "--dry-run"])
    printed = capsys.readouterr().out
    assert f"dtd: {tmp_path / 'dtd' / 'archives' / 'dtd-r1.0.1.tar.gz'} would be unpacked" in printed
    assert "food-101: http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz would be downloaded" in printed
    assert "imagenet: Get ILSVRC2012_img_train.tar (MD5 1d675b47d978889d74fa0da5fadfb00e) from" in printed
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["dtd"]


def test_the_command_as_json_and_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replicas.write(tmp_path, "dtd")
    main(["data", "prepare", "dtd", "--root", str(tmp_path), "--json", *LAX_WORDS])
    [found] = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"classes": 3, "train": 15, "val": 6, "test": 9}
    for words, message in (
        (["prepare", "dtd2", "--root", str(tmp_path)], "no data set 'dtd2'"),
        (["prepare", "dtd", "--root", str(tmp_path), "--reference-images", "-1"], "reference_images: must not be"),
        (["prepare", "dtd", "--root", str(tmp_path), "--split-seed", "-1"], "split_seed: must not be negative"),
        (["unpack"], "data: no command 'unpack'"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["data", *words])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in (one(tmp_path / "file", "dtd").problem or "")


def test_without_scipy_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = replicas.write(tmp_path, "flowers-102")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    assert install("data") in (one(tmp_path, "flowers-102").problem or "")
    assert not (folder / "flowers102_annotations.json").exists()
