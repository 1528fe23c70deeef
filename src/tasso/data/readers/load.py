"""One own task, whatever it is read from: classes, names, splits and checks are the same for all readers."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tasso.config import RunConfig, read_templates
from tasso.config.task_specs import HUB, Place
from tasso.data.annotated import read_annotated
from tasso.data.readers.coop import read_coop
from tasso.data.readers.folder import listed, read_folder
from tasso.data.readers.found import SPLITS, Entry, Found, Split
from tasso.data.readers.huggingface import read_hub
from tasso.data.readers.names import class_names, in_order
from tasso.data.readers.split import divided
from tasso.data.readers.table import ENDINGS, read_table
from tasso.data.readers.webdataset import is_shards, read_shards
from tasso.data.task import ImageSet, Task
from tasso.errors import ConfigError, DataError

log = logging.getLogger("tasso")

ANNOTATIONS = "annotations.json"
COOP = "split_zhou_"


def load_own(place: Place, config: RunConfig) -> Task:
    """Read one own task and check it. Every error names the task, and within it the file and what to do."""
    name = place["name"]
    try:
        found = find(place)
        return assemble(name, found, place, config)
    except (DataError, ConfigError) as error:
        raise DataError(f"task {name!r}: {error}") from None


def find(place: Place) -> Found:
    """Choose the reader by what lies there."""
    text: str = place["from"]
    columns: Mapping[str, str] | None = place.get("columns")
    if text.startswith(HUB):
        return read_hub(text, place.get("subset"), columns)
    if is_shards(text):
        return read_shards(text)
    path = Path(text)
    images = Path(place["images"]) if "images" in place else None
    if images and not images.is_dir():
        raise DataError(f"images: no such folder: {images}")
    if not path.exists():
        raise DataError(f"no such file or folder: {path}")
    if path.is_file() and path.suffix.lower() in ENDINGS:
        return read_table(path, images, columns)
    if path.is_file() and path.suffix.lower() == ".json":
        return read_coop(path, images) if path.name.startswith(COOP) else _annotated(path.parent, path)
    if path.is_dir():
        if splits := sorted(path.glob(f"{COOP}*.json")):
            if len(splits) > 1:
                raise DataError(f"{path}: several {COOP} files ({', '.join(s.name for s in splits)}); name one of them")
            return read_coop(splits[0], images)
        if any(path.glob(f"*{ANNOTATIONS}")):
            return _annotated(path)
        return read_folder(path)
    if path.suffix.lower() == ".zip":
        _, files, _ = listed(path)
        return _annotated(path) if any(file.endswith(ANNOTATIONS) for file in files) else read_folder(path)
    raise DataError(
        f"{path}: what is this? tasso reads a folder or zip of images, {', '.join(ENDINGS)}, *_{ANNOTATIONS}, "
        f"{COOP}*.json, .tar shards and {HUB}DATASET"
    )


def _annotated(place: Path, file: Path | None = None) -> Found:
    """The layout of the paper's authors; class names stand as they are."""
    prefix = file.name.removesuffix(f"_{ANNOTATIONS}") if file else None
    if file and not file.name.endswith(f"_{ANNOTATIONS}"):
        raise DataError(f"{file}: expected a name that ends in _{ANNOTATIONS}, or begins with {COOP}")
    task = read_annotated(place.parent, place.stem if place.suffix == ".zip" else place.name, prefix)
    sets: dict[Split, ImageSet] = {"train": task.train, "val": task.val, "test": task.test}
    entries = [
        Entry(key, task.class_names[label], split)
        for split, images in sets.items()
        for key, label in zip(images.keys, images.labels.tolist(), strict=True)
    ]
    names = {name: name for name in task.class_names}
    return Found(str(file or place), task.train.source, entries, task.class_names, names)


def assemble(name: str, found: Found, place: Place, config: RunConfig) -> Task:
    """A task from all its images."""
    where = found.where
    if not found.entries:
        raise DataError(f"{where}: lists no images")
    labels = list(found.labels or in_order([entry.label for entry in found.entries]))
    if len(labels) < 2:
        raise DataError(f"{where}: only one class ({labels[0]}); there is nothing to tell apart")
    names = class_names(labels, found.names, Path(place["names"]) if "names" in place else None, where)
    splits = _splits(name, found, config)
    _check_classes(splits, dict(zip(labels, names, strict=True)), where)
    numbers = {label: number for number, label in enumerate(labels)}

    def images(split: Split) -> ImageSet:
        chosen = splits[split]
        places = np.asarray([numbers[entry.label] for entry in chosen], dtype=np.int64)
        return ImageSet(found.source, tuple(entry.key for entry in chosen), places)

    templates = read_templates(place["template"]) if "template" in place else ()
    return Task(name, names, images("train"), images("val"), images("test"), templates)


def _splits(name: str, found: Found, config: RunConfig) -> dict[Split, list[Entry]]:
    """Images by split. Without test images, those for validation serve; without these, some are held back."""
    given: dict[Split, list[Entry]] = {split: [] for split in SPLITS}
    free: list[Entry] = []
    for entry in found.entries:
        (given[entry.split] if entry.split else free).append(entry)
    if free:  # readers give a split to all images or to none
        given["train"] = free
    if not given["train"]:
        there = ", ".join(split for split, entries in given.items() if entries)
        raise DataError(f"{found.where}: no images to train on (there is {there}); expected a split 'train'")
    if given["test"]:
        return given
    if given["val"]:
        log.info("%s: no test images, so those for validation serve", name)
        return {"train": given["train"], "val": [], "test": given["val"]}
    train, test = _divided(given["train"], config)
    if not test:
        raise DataError(f"{found.where}: no class has two images, so there is nothing to test with")
    log.info(
        "%s: %d classes, %d images; none are for testing, so %g %% of each class are held back (%d)",
        name, len({entry.label for entry in train}), len(train) + len(test), 100 * config.test_share, len(test),
    )  # fmt: skip
    return {"train": train, "val": [], "test": test}


def _divided(entries: list[Entry], config: RunConfig) -> tuple[list[Entry], list[Entry]]:
    by_label: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_label[entry.label].append(entry)
    train: list[Entry] = []
    test: list[Entry] = []
    for label, members in by_label.items():
        kept, held_back = divided([entry.key for entry in members], label, config.test_share, config.split_seed)
        train += [members[number] for number in kept]
        test += [members[number] for number in held_back]
    return train, test


def _check_classes(splits: Mapping[Split, list[Entry]], names: Mapping[str, str], where: str) -> None:
    """Every class can be learned; one that cannot be tested is told."""
    learned, tested = ({entry.label for entry in splits[split]} for split in ("train", "test"))
    if unlearned := [label for label in names if label not in learned]:
        have = "has test images, but none to train on" if unlearned[0] in tested else "has no images to train on"
        raise DataError(f"{where}: class {unlearned[0]!r} {have} ({len(unlearned)} such); add some or remove it")
    if untested := [label for label in names if label not in tested]:
        shown = ", ".join(untested[:3]) + (" …" if len(untested) > 3 else "")
        log.warning("%s: %d classes have no test images, so nobody sees how well they are known: %s", where,
                    len(untested), shown)  # fmt: skip
