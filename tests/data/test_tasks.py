"""Tasks and sequences: the paper's orders, the authors' layout, and every way in which data can be wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import write_data_set
from tasso.config import RunConfig, from_dict
from tasso.data import BENCHMARKS, load_sequence, order, rotation
from tasso.data.annotated import ZipSource, read_annotated
from tasso.errors import ConfigError, DataError

# The supplement's table of sequences, shortened to first letters that are unique.
PAPER = {
    1: "aircraft dtd eurosat flowers food pets cars ucf",
    2: "dtd eurosat flowers food pets cars ucf aircraft",
    3: "eurosat flowers food pets cars ucf aircraft dtd",
    4: "flowers food pets cars ucf aircraft dtd eurosat",
    5: "food pets cars ucf aircraft dtd eurosat flowers",
    6: "pets cars ucf aircraft dtd eurosat flowers food",
    7: "cars ucf aircraft dtd eurosat flowers food pets",
    8: "ucf aircraft dtd eurosat flowers food pets cars",
}


@pytest.mark.parametrize("number", PAPER)
def test_sequences_equal_the_papers_table(number: int) -> None:
    names = order(BENCHMARKS["mtil"].tasks, f"S{number}")
    assert all(word in name for word, name in zip(PAPER[number].split(), names, strict=True))


def test_mini_has_actions_instead_of_ucf() -> None:
    mini, full = BENCHMARKS["mtil-mini"].tasks, BENCHMARKS["mtil"].tasks
    assert [name if name != "actions" else "ucf-101" for name in mini] == list(full)


def test_rotation_is_to_the_left() -> None:
    assert rotation(["a", "b", "c"], 2) == ["b", "c", "a"]


def test_custom_order_and_limit() -> None:
    names = BENCHMARKS["mtil"].tasks
    assert order(names, "eurosat, dtd") == ["eurosat", "dtd"]
    assert order(names, "S2", limit=3) == ["dtd", "eurosat", "flowers-102"]


@pytest.mark.parametrize(
    ("sequence", "complaint"),
    [("S9", "S9 does not exist"), ("S0", "S1 … S8"), ("dtd,birds", "no task 'birds'"), ("dtd,dtd", "more than once")],
)
def test_bad_sequences(sequence: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        order(BENCHMARKS["mtil"].tasks, sequence)


def test_folder_and_zip_read_the_same(mini_root: Path, tmp_path: Path) -> None:
    write_data_set(tmp_path, "dtd", "dtd")
    from_folder, from_zip = read_annotated(tmp_path, "dtd"), read_annotated(mini_root, "dtd")
    assert (mini_root / "dtd.zip").exists()
    assert from_folder.class_names == from_zip.class_names
    assert from_folder.train.keys == from_zip.train.keys
    np.testing.assert_array_equal(from_folder.train.labels, from_zip.train.labels)
    key = from_zip.train.keys[3]
    assert from_zip.train.source.read(key) == from_folder.train.source.read(key)


def test_zip_with_images_at_its_root_and_folder_before_zip(tmp_path: Path) -> None:
    folder = write_data_set(tmp_path / "loose", "dtd", "dtd")
    with zipfile.ZipFile(tmp_path / "dtd.zip", "w") as archive:
        for path in sorted(folder.rglob("*.*")):
            archive.write(path, path.relative_to(folder))
    task = read_annotated(tmp_path, "dtd")
    assert not task.train.source.missing(task.train.keys)
    (tmp_path / "dtd").mkdir()  # an empty folder does not hide the zip
    assert len(read_annotated(tmp_path, "dtd").train) == len(task.train)
    shutil.rmtree(tmp_path / "dtd")
    shutil.copytree(folder, tmp_path / "dtd")
    assert read_annotated(tmp_path, "dtd").train.source.describe("x").startswith(str(tmp_path / "dtd" / "images"))


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_files_of_a_zip_are_read_from_their_own_places(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"a/ä.png": b"one" * 50, "a/empty.png": b"", "a/b/c.png": bytes(range(256))}
    with zipfile.ZipFile(tmp_path / "set.zip", "w", kind) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    prefixed = tmp_path / "prefixed.zip"  # as an archive that unpacks itself
    prefixed.write_bytes(b"#!/bin/sh\n" + (tmp_path / "set.zip").read_bytes())
    for file in (tmp_path / "set.zip", prefixed):
        source = ZipSource(file, zipfile.ZipFile(file), "a/")
        monkeypatch.setattr(source.zip, "open", None)  # its readers wait for each other
        assert {f"a/{key}": source.read(key) for key in ("ä.png", "empty.png", "b/c.png")} == contents


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_torn_zip_is_noticed(kind: int, tmp_path: Path) -> None:
    file = tmp_path / "set.zip"
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr("a.png", bytes(range(256)))
        archive.writestr("b.png", bytes(range(256)))
    source, whole = ZipSource(file, zipfile.ZipFile(file), ""), file.read_bytes()
    where = source.zip.getinfo("b.png").header_offset
    for torn in (whole[:where], whole[:where] + b"?" + whole[where + 1 :], whole[: where + 60]):
        file.write_bytes(torn)
        with pytest.raises((zipfile.BadZipFile, zlib.error)):
            source.read("b.png")


def damaged(tmp_path: Path, change: Any) -> Path:
    """A data set whose annotation document `change` has edited."""
    folder = write_data_set(tmp_path, "dtd", "dtd")
    file = folder / "dtd_annotations.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return tmp_path


def replace(document: dict[str, Any], split: str, index: int, entry: Any) -> None:
    document["data"][split][index] = entry


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: replace(d, "train", 4, ["train/000.png", 3]), r"data\.train\[4\]: label 3 is not one of 0 … 2"),
        (lambda d: replace(d, "test", 0, ["train/000.png", -1]), r"data\.test\[0\]: label -1"),
        (lambda d: replace(d, "train", 1, ["x.png", "1"]), r"data\.train\[1\]: label '1'"),
        (lambda d: replace(d, "train", 1, "x.png"), r"data\.train\[1\]: expected \[path, label\]"),
        (lambda d: replace(d, "train", 1, ["../../secret", 1]), r"data\.train\[1\]: path .* does not lie in"),
        (lambda d: d["class_names"].__setitem__(2, d["class_names"][0]), r"class_names\[2\] repeats class_names\[0\]"),
        (lambda d: d["class_names"].__setitem__(1, "  "), r"class_names\[1\] is empty"),
        (lambda d: d["class_names"].__setitem__(1, d["class_names"][0] + " "), r"class_names\[1\] repeats"),
        (lambda d: replace(d, "train", 1, ["", 1]), r"data\.train\[1\]: path '' does not lie in"),
        (lambda d: d["data"].__setitem__("val", None), r"data\.val must be a list"),
        (lambda d: d["data"].__setitem__("test", 3), r"data\.test must be a list, not 3"),
        (lambda d: d.pop("class_names"), "'class_names' must be"),
        (lambda d: d.pop("data"), "'data' must have"),
        (lambda d: d["data"].__setitem__("training", []), r"data\.training is not one of"),
    ],
)
def test_each_fault_names_file_and_entry(tmp_path: Path, change: Any, complaint: str) -> None:
    root = damaged(tmp_path, change)
    with pytest.raises(DataError, match=complaint) as error:
        read_annotated(root, "dtd", "dtd")
    assert "dtd_annotations.json" in str(error.value)


def config_for(root: Path, **options: Any) -> RunConfig:
    return from_dict({"benchmark": "mtil-mini", "data_root": str(root), "sequence": "dtd", **options})


def test_missing_image_is_named_before_training(tmp_path: Path) -> None:
    folder = write_data_set(tmp_path, "dtd", "dtd")
    write_data_set(tmp_path, "imagenet", "imagenet")
    (folder / "images" / "test" / "002.png").unlink()
    with pytest.raises(DataError, match=r"task 'dtd', test: image missing: .*002\.png"):
        load_sequence(config_for(tmp_path, check_counts=False))


def test_wrong_counts_are_refused_unless_allowed(mini_root: Path) -> None:
    with pytest.raises(DataError, match="dtd: expected 10 classes, 600 train, 360 test, found 3 classes, 36 train"):
        load_sequence(config_for(mini_root))
    assert load_sequence(config_for(mini_root, check_counts=False)).names == ["dtd"]


def test_empty_split_is_refused(tmp_path: Path) -> None:
    root = damaged(tmp_path, lambda d: d["data"].__setitem__("test", []))
    with pytest.raises(DataError, match="task 'dtd' has no test images"):
        load_sequence(config_for(root, check_counts=False), with_reference=False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"benchmark": "cifar"}, "benchmark: no benchmark 'cifar'"),
        ({"data_root": None}, "data_root: benchmark mtil-mini needs"),
        ({"data_root": "/no/such/folder"}, "data_root: no such folder"),
    ],
)
def test_bad_roots_and_benchmarks(mini_root: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_sequence(from_dict({"benchmark": "mtil-mini", "data_root": str(mini_root), **options}))


def test_missing_data_set_and_annotations_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data set 'dtd' not found"):
        read_annotated(tmp_path, "dtd")
    (tmp_path / "dtd").mkdir()
    with pytest.raises(DataError, match=r"dtd_annotations\.json not found"):
        read_annotated(tmp_path, "dtd", "dtd")
    (tmp_path / "eurosat.zip").write_text("not a zip")
    with pytest.raises(DataError, match=r"eurosat\.zip: not a zip file"):
        read_annotated(tmp_path, "eurosat")
    (tmp_path / "dtd" / "dtd_annotations.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(DataError, match=r"dtd_annotations\.json: not UTF-8"):
        read_annotated(tmp_path, "dtd")
    (tmp_path / "dtd" / "dtd_annotations.json").write_text("{")
    with pytest.raises(DataError, match=r"dtd_annotations\.json: not valid JSON"):
        read_annotated(tmp_path, "dtd")


def test_reference_subset_is_drawn_as_the_authors_do(mini_root: Path) -> None:
    sequence = load_sequence(config_for(mini_root, check_counts=False, reference_images=10))
    everything = read_annotated(mini_root, "imagenet").train
    chosen = np.random.default_rng(1102).choice(len(everything), 10, replace=False)
    assert sequence.reference is not None
    assert sequence.reference.keys == tuple(everything.keys[i] for i in chosen)


def test_atlas_needs_no_root() -> None:
    sequence = load_sequence(from_dict({"benchmark": "atlas", "limit_tasks": 2, "reference_images": 3}))
    task = sequence.tasks[0]
    assert len(task.class_names) >= 8
    image = task.train.source.read(task.train.keys[-1])
    assert isinstance(image, np.ndarray)
    assert image.shape == (64, 64, 3)
    assert sequence.reference is not None
    assert len(sequence.reference) == 3


def test_tasks_and_benchmarks_need_no_torch() -> None:
    code = "import sys, tasso.data, tasso.data.readers.load; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
