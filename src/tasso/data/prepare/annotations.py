"""The annotation file of a data set, from CoOp's split file or from the data set's own lists.

A record says how it was written. An annotation file that was not written by tasso, or was changed since, is the user's
own and is never replaced unless asked for.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasso.data.annotated import check_files, read_annotated
from tasso.data.prepare.options import Options
from tasso.data.prepare.sources import REFERENCE, Recipe, Rule
from tasso.data.prepare.splits import apply_rule
from tasso.data.prepare.trees import IMAGES, LISTS, UNPACKING
from tasso.data.readers.coop import read_coop_split
from tasso.errors import DataError
from tasso.files import write_text

RECORD = "prepared.json"
# How the sets came about, for the record.
SPLIT_ORIGIN: dict[Rule, str] = {
    "official": "official",
    "resplit": "drawn",
    "hold-out": "official test, validation drawn",
    "reference": "reference",
}


def find_coop_split(recipe: Recipe, folders: Sequence[Path]) -> Path | None:
    """CoOp's split file, if the user put it into one of these folders."""
    if not recipe.coop_split:
        return None
    return next((folder / recipe.coop_split for folder in folders if (folder / recipe.coop_split).is_file()), None)


def read_record(folder: Path) -> dict[str, Any]:
    """How a data set was prepared; empty if it was not prepared by tasso."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def has_own_annotations(recipe: Recipe, folder: Path) -> bool:
    """Is there an annotation file that was not written by tasso, or was changed since?"""
    file, record = folder / recipe.annotation_file, read_record(folder)
    return file.is_file() and _digest(file.read_bytes()) not in (record.get("annotation"), record.get("replaces"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def annotate(recipe: Recipe, folder: Path, options: Options, split: Path | None) -> tuple[str, bool]:
    """Write the annotation file, unless it is up to date.

    Returns:
        How the sets came about, and whether the file was written.
    """
    if split:
        listing, origin = read_coop_split(split), "coop"
    else:
        images = folder / IMAGES
        lists = images if recipe.name == REFERENCE else folder / LISTS
        listing = apply_rule(recipe.rule, recipe.layout(images, lists), options.split_seed)
        origin = SPLIT_ORIGIN[recipe.rule]
    if options.names_style == "spaces":
        listing = listing.spaced()
    if options.check_counts:
        recipe.data_set.check(listing.task(folder / IMAGES))
    text = json.dumps({"data": listing.sets, "class_names": listing.class_names}, ensure_ascii=False) + "\n"
    file, before = folder / recipe.annotation_file, read_record(folder)
    record = {
        "version": 1,
        "annotation": _digest(text.encode()),
        "replaces": _digest(file.read_bytes()) if file.is_file() else None,
        "split": origin,
        "split_file": _digest(split.read_bytes()) if split else None,
        "split_seed": options.split_seed if "drawn" in origin else None,
        "names": options.names_style,
    }
    if record["replaces"] == record["annotation"] and {**before, "replaces": None} == {**record, "replaces": None}:
        return origin, False
    check_text(recipe, folder, text)
    # The record is written first and knows the file that it replaces: after a kill, either file is known as ours.
    write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
    write_text(file, text)
    return origin, True


def check_text(recipe: Recipe, folder: Path, text: str) -> None:
    """Read the annotations under another name first: a file that cannot be used is never put in place."""
    trial = folder / f"{UNPACKING}annotations"
    try:
        trial.mkdir()
        (trial / recipe.annotation_file).write_text(text, encoding="utf-8")
        (trial / IMAGES).symlink_to(folder.absolute() / IMAGES)
        check_annotations(folder, recipe, trial.name)
    except DataError as error:
        raise DataError(str(error).replace(str(trial), str(folder))) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def check_annotations(root: Path, recipe: Recipe, name: str | None = None) -> None:
    """The annotation file can be read, and all its images exist."""
    task = read_annotated(root, name or recipe.name, recipe.data_set.prefix)
    for split, images in task.sets.items():
        check_files(images, f"{recipe.name}, {split}")


def counts(root: Path, recipe: Recipe) -> dict[str, int]:
    """Numbers of classes and images in the annotation file."""
    return read_annotated(root, recipe.name, recipe.data_set.prefix).counts
