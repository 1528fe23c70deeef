"""The authors' layout, damaged in many ways; and archives of the paper's data."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_inputs.case import Bad
from bad_inputs.world import RUN, cut, replace_by_folder, rewrite

FILE = Path("data/dtd/dtd_annotations.json")


def changed(name: str, what: str, change: Callable[[Any], Any], says: str) -> Bad:
    return made(name, what, lambda place: rewrite(place / FILE, change), rf"dtd_annotations\.json.*({says})")


def made(name: str, what: str, make: Callable[[Path], object], says: str) -> Bad:
    return Bad(f"annotations/{name}", what, RUN, says, make, ("model", "data"))


def written(name: str, what: str, content: bytes, says: str) -> Bad:
    return made(name, what, lambda p: (p / FILE).write_bytes(content), rf"dtd_annotations\.json.*({says})")


def entry(value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        document["data"]["train"][1] = value

    return change


def as_zip(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(place: Path) -> None:
        import shutil

        with zipfile.ZipFile(place / "data/dtd.zip", "w") as archive:
            for path in sorted((place / "data/dtd").rglob("*.*")):
                archive.write(path, path.relative_to(place / "data"))
        shutil.rmtree(place / "data/dtd")
        change(place / "data/dtd.zip")

    return make


def flip(file: Path) -> None:
    """One byte in the middle of the first stored image."""
    content = bytearray(file.read_bytes())
    content[content.find(b"IDAT") + 20] ^= 0xFF
    file.write_bytes(content)


CASES = [
    written("empty", "an empty annotation file", b"", "not valid JSON"),
    written("truncated", "half an annotation file", b'{"data": {"train": [["train/000.png", 0', "not valid JSON"),
    written("nul", "NUL bytes", bytes(64), "not valid JSON"),
    written("utf16", "UTF-16", '{"data": {}}'.encode("utf-16"), "not UTF-8 text"),
    written("list", "a list", b"[1, 2]", "'class_names' must be a list of names"),
    written("deep", "a hundred thousand brackets", b"[" * 100_000, "nested too deeply|not valid JSON"),
    changed("no-names", "no class names", lambda d: d.pop("class_names") and None, "'class_names' must be"),
    changed("names-empty", "an empty list of names", lambda d: d.update(class_names=[]), "'class_names' must be"),
    changed("names-number", "a number as class name", lambda d: d["class_names"].__setitem__(1, 7), r"class_names\[1\]"),
    changed("names-blank", "a blank class name", lambda d: d["class_names"].__setitem__(1, " "), r"class_names\[1\] is empty"),
    changed("names-twice", "a class name twice", lambda d: d.update(class_names=["a", "a"]), r"class_names\[1\] repeats"),
    changed("no-data", "no images at all", lambda d: d.pop("data") and None, "'data' must have the lists"),
    changed("data-list", "a list in the place of the splits", lambda d: d.update(data=[]), "'data' must have the lists"),
    changed("split-unknown", "a split that there is not", lambda d: d["data"].update(extra=[]), "data.extra is not one of"),
    changed("split-number", "a number in the place of a list", lambda d: d["data"].update(test=3), "data.test must be a list"),
    made("train-empty", "no training images", lambda p: rewrite(p / FILE, lambda d: d["data"].update(train=[])), r"task 'dtd' has no train images"),
    made("test-empty", "no test images", lambda p: rewrite(p / FILE, lambda d: d["data"].update(test=[])), r"task 'dtd' has no test images"),
    changed("entry-text", "a path without a label", entry("train/001.png"), r"data\.train\[1\]: expected \[path, label\]"),
    changed("entry-three", "three things in an entry", entry(["train/001.png", 1, 2]), r"data\.train\[1\]: expected"),
    changed("label-large", "a label beyond the last class", entry(["train/001.png", 2]), r"data\.train\[1\]: label 2 is not one of 0 … 1"),
    changed("label-negative", "a negative label", entry(["train/001.png", -1]), r"data\.train\[1\]: label -1"),
    changed("label-text", "a label as text", entry(["train/001.png", "1"]), r"data\.train\[1\]: label '1'"),
    changed("label-true", "true as label", entry(["train/001.png", True]), r"data\.train\[1\]: label True"),
    changed("label-null", "no label", entry(["train/001.png", None]), r"data\.train\[1\]: label None"),
    changed("path-number", "a number as path", entry([3, 1]), r"data\.train\[1\]: expected"),
    changed("path-empty", "an empty path", entry(["", 1]), r"data\.train\[1\]: path ''"),
    changed("path-absolute", "a path from the root", entry(["/etc/passwd", 1]), r"data\.train\[1\]: path '/etc/passwd'"),
    changed("path-upwards", "a path out of the folder", entry(["../../x.png", 1]), r"data\.train\[1\]: path"),
    made("path-missing", "an image that is not there", lambda p: (p / "data/dtd/images/train/001.png").unlink(),
         r"dtd.*image missing: .*train/001\.png"),
    made("path-nul", "a NUL in a path", lambda p: rewrite(p / FILE, entry(["a\0b.png", 1])), r"dtd.*a.+b\.png"),
    made("file-missing", "no annotation file", lambda p: (p / FILE).unlink(), r"dtd.*annotation file.*not found"),
    made("file-folder", "a folder in its place", lambda p: replace_by_folder(p / FILE), r"dtd_annotations\.json.*[Ii]s a directory"),
    made("file-twice", "two annotation files", lambda p: [
        (p / FILE).rename(p / "data/dtd/a_annotations.json"), (p / "data/dtd/b_annotations.json").write_text("{}")],
        r"dtd.*several annotation files"),
    made("file-loop", "a link to itself in its place", lambda p: [(p / FILE).unlink(), (p / FILE).symlink_to(FILE.name)],
         r"dtd_annotations\.json"),
    made("zip-text", "text called .zip", as_zip(lambda z: z.write_text("no")), r"dtd\.zip: not a zip file"),
    made("zip-truncated", "half a zip", as_zip(cut), r"dtd\.zip: not a zip file"),
    made("zip-empty", "an empty file called .zip", as_zip(lambda z: z.write_bytes(b"")), r"dtd\.zip: not a zip file"),
    made("reference-missing", "no reference images", lambda p: (p / "data/imagenet/imagenet_annotations.json").unlink(),
         r"imagenet.*annotation file.*not found"),
    Bad("annotations/counts", "other numbers of images than the paper's", (*RUN, "--check-counts"),
        r"dtd: .*Use --no-check-counts", needs=("model", "data")),
    Bad("annotations/check-nowhere", "a data folder that is not there, for tasso data check",
        ("data", "check", "--benchmark", "mtil-mini", "--data-root", "nowhere"), r"nowhere"),
    Bad("annotations/check-tolerance", "a tolerance that is no number",
        ("data", "check", "--benchmark", "mtil-mini", "--data-root", "data", "--sequence", "dtd", "--tolerance", "nan"), r"tolerance.*nan", needs=("data",)),
    Bad("annotations/prepare-root-file", "a file as folder of all data sets",
        ("data", "prepare", "dtd", "--root", "taken", "--no-download"), r"taken", lambda p: (p / "taken").write_text("mine")),
    Bad("annotations/prepare-archive-text", "text called dtd-r1.0.1.tar.gz",
        ("data", "prepare", "dtd", "--root", "data", "--archives", "archives", "--no-download", "--no-check-archives"),
        r"dtd-r1\.0\.1\.tar\.gz", lambda p: [(p / "archives").mkdir(), (p / "archives/dtd-r1.0.1.tar.gz").write_text("no")], leaves=("data",)),
    Bad("annotations/prepare-checksum", "an archive with another checksum",
        ("data", "prepare", "dtd", "--root", "data", "--archives", "archives", "--no-download"),
        r"dtd-r1\.0\.1\.tar\.gz.*its MD5 is", lambda p: [(p / "archives").mkdir(), (p / "archives/dtd-r1.0.1.tar.gz").write_text("no")], leaves=("data",)),
    Bad("annotations/prepare-seed", "a negative seed of the splits", ("data", "prepare", "dtd", "--root", "data", "--no-download", "--split-seed=-1"),
        r"split_seed: must not be negative"),
]  # fmt: skip
