"""One own task: chooses the reader; classes, names, splits and checks are the same for all readers."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tasso.config import RunConfig, read_templates
from tasso.config.task_specs import HUB, TaskSpec, names_catalogue
from tasso.data.annotated import read_annotated
from tasso.data.damaged import readable
from tasso.data.readers.coop import read_coop
from tasso.data.readers.folder import list_files, read_folder
from tasso.data.readers.huggingface import read_hub
from tasso.data.readers.labelled import Entry, LabelledImages
from tasso.data.readers.names import class_names, natural_order
from tasso.data.readers.split import split_class
from tasso.data.readers.table import SUFFIXES, read_table
from tasso.data.readers.webdataset import is_shards, read_shards
from tasso.data.task import SPLITS, ImageSet, Split, Task
from tasso.errors import ConfigError, DataError

log = logging.getLogger("tasso")

ANNOTATIONS = "annotations.json"
COOP = "split_zhou_"


def load_own(spec: TaskSpec, config: RunConfig) -> Task:
    """Read one own task and check it. Every error names the task, the file and what to do."""
    name = spec["name"]
    try:
        images = read_images(spec)
        _warn_of_not_read(images, name)
        found, left_out = _readable(images, name, config)
        return replace(assemble(name, found, spec, config), left_out=left_out)
    except (DataError, ConfigError) as error:
        raise DataError(f"task {name!r}: {error}") from None


def _warn_of_not_read(found: LabelledImages, name: str) -> None:
    """Images of other kinds are left out, which should be noticed."""
    if files := found.not_read:
        kinds = ", ".join(sorted({PurePosixPath(file).suffix.lower() for file in files}))
        are = "file is" if len(files) == 1 else "files are"
        log.warning("%s: %d %s not read (%s), such as %s; save them as JPEG or PNG to use them",
                    name, len(files), are, kinds, files[0])  # fmt: skip


def _readable(found: LabelledImages, name: str, config: RunConfig) -> tuple[LabelledImages, tuple[str, ...]]:
    """With `corrupt: skip` the images that can be read, and the keys of the others: as if these were not there."""
    if config.corrupt == "error":
        return found, ()
    images = ImageSet.of(found.source, [(entry.key, 0) for entry in found.entries])
    kept, left_out = readable(images, name, config.workers)
    keys = set(kept.keys)
    return replace(found, entries=[entry for entry in found.entries if entry.key in keys]), tuple(left_out)


def check_places(specs: Iterable[TaskSpec]) -> None:
    """Raise a DataError if the file or folder of an own task is not there; nothing is read."""
    for spec in specs:
        if not names_catalogue(spec["from"]) and (problem := _missing(spec)):
            raise DataError(f"task {spec['name']!r}: {problem}")


def _missing(spec: TaskSpec) -> str:
    """What a task names and is not there, in words."""
    if spec["from"].startswith(HUB) or is_shards(spec["from"]):
        return ""  # their readers say so
    if "images" in spec and not Path(spec["images"]).is_dir():
        return f"images: no such folder: {spec['images']}"
    return "" if Path(spec["from"]).exists() else f"no such file or folder: {spec['from']}"


def read_images(spec: TaskSpec) -> LabelledImages:
    """Choose the reader by the kind of file or folder."""
    text: str = spec["from"]
    columns: Mapping[str, str] | None = spec.get("columns")
    if text.startswith(HUB):
        return read_hub(text, spec.get("subset"), columns)
    if is_shards(text):
        return read_shards(text)
    if problem := _missing(spec):
        raise DataError(problem)
    path = Path(text)
    images = Path(spec["images"]) if "images" in spec else None
    if path.is_file() and path.suffix.lower() in SUFFIXES:
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
        _, files, _ = list_files(path)
        return _annotated(path) if any(file.endswith(ANNOTATIONS) for file in files) else read_folder(path)
    raise DataError(
        f"{path}: unknown kind of file. tasso reads a folder or zip of images, {', '.join(SUFFIXES)}, *_{ANNOTATIONS}, "
        f"{COOP}*.json, .tar shards and {HUB}DATASET"
    )


def _annotated(folder: Path, file: Path | None = None) -> LabelledImages:
    """The authors' layout; class names stay as they are."""
    prefix = file.name.removesuffix(f"_{ANNOTATIONS}") if file else None
    if file and not file.name.endswith(f"_{ANNOTATIONS}"):
        raise DataError(f"{file}: expected a name that ends in _{ANNOTATIONS}, or begins with {COOP}")
    task = read_annotated(folder.parent, folder.stem if folder.suffix == ".zip" else folder.name, prefix)
    entries = [
        Entry(key, task.class_names[label], split)
        for split, images in task.sets.items()
        for key, label in zip(images.keys, images.labels.tolist(), strict=True)
    ]
    names = {name: name for name in task.class_names}
    return LabelledImages(str(file or folder), task.train.source, entries, task.class_names, names)


def assemble(name: str, found: LabelledImages, spec: TaskSpec, config: RunConfig) -> Task:
    """A task from all its images."""
    where = found.where
    if not found.entries:
        raise DataError(f"{where}: lists no images")
    labels = list(found.labels or natural_order([entry.label for entry in found.entries]))
    if len(labels) < 2:
        raise DataError(f"{where}: only one class ({labels[0]}); there is nothing to tell apart")
    names = class_names(labels, found.names, Path(spec["names"]) if "names" in spec else None, where)
    splits = _splits(name, found, config)
    _check_classes(splits, dict(zip(labels, names, strict=True)), where)
    numbers = {label: number for number, label in enumerate(labels)}

    pairs = {split: [(entry.key, numbers[entry.label]) for entry in entries] for split, entries in splits.items()}
    templates = read_templates(spec["template"]) if "template" in spec else ()
    return Task.of(name, names, found.source, pairs, templates)


def _splits(name: str, found: LabelledImages, config: RunConfig) -> dict[Split, list[Entry]]:
    """Images by split. Without test images, validation images are taken; without these, a share of each class."""
    given: dict[Split, list[Entry]] = {split: [] for split in SPLITS}
    for entry in found.entries:  # readers give a split to all images or to none
        given[entry.split or "train"].append(entry)
    if not given["train"]:
        others = ", ".join(split for split, entries in given.items() if entries)
        raise DataError(f"{found.where}: no images to train on (there is {others}); expected a split 'train'")
    if given["test"]:
        return given
    if given["val"]:
        log.info("%s: no test images; the validation images are used for testing", name)
        return {"train": given["train"], "val": [], "test": given["val"]}
    if config.test_share == 1:
        classes = len({entry.label for entry in given["train"]})
        log.info("%s: %d classes, %d images, all for testing", name, classes, len(given["train"]))
        return {"train": [], "val": [], "test": given["train"]}
    train, test = _draw_test(given["train"], config)
    if not test:
        raise DataError(f"{found.where}: no class has two images, so there is nothing to test with")
    log.info(
        "%s: %d classes, %d images; none are for testing, so %g %% of each class are held back (%d)",
        name, len({entry.label for entry in train}), len(train) + len(test), 100 * config.test_share, len(test),
    )  # fmt: skip
    return {"train": train, "val": [], "test": test}


def _draw_test(entries: list[Entry], config: RunConfig) -> tuple[list[Entry], list[Entry]]:
    by_label: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_label[entry.label].append(entry)
    train: list[Entry] = []
    test: list[Entry] = []
    for label, members in by_label.items():
        for_train, for_test = split_class([e.key for e in members], label, config.test_share, config.split_seed)
        train += [members[index] for index in for_train]
        test += [members[index] for index in for_test]
    return train, test


def _check_classes(splits: Mapping[Split, list[Entry]], names: Mapping[str, str], where: str) -> None:
    """Every class has training images, unless no class has any; for one without test images there is a warning."""
    trained, tested = ({entry.label for entry in splits[split]} for split in ("train", "test"))
    if trained and (untrained := [label for label in names if label not in trained]):
        have = "has test images, but none to train on" if untrained[0] in tested else "has no images to train on"
        raise DataError(f"{where}: class {untrained[0]!r} {have} ({len(untrained)} such); add some or remove it")
    if untested := [label for label in names if label not in tested]:
        shown = ", ".join(untested[:3]) + (" …" if len(untested) > 3 else "")
        log.warning("%s: no test images in %d of %d classes, so their accuracy is not measured: %s", where,
                    len(untested), len(names), shown)  # fmt: skip
