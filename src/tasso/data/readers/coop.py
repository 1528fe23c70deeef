"""CoOp's `split_zhou_*.json`: lists of [path, label, class name] for train, val and test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasso.data.annotated import FolderSource
from tasso.data.readers.labelled import Entry, Item, LabelledImages, Listing, read_text
from tasso.data.readers.names import readable
from tasso.data.task import SPLITS, Split
from tasso.errors import DataError
from tasso.files import parse_json

COOP_PAGE = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
ITEM = "[path, label, class name]"


def parse_coop(file: Path) -> tuple[dict[int, str], dict[Split, list[Item]]]:
    """Class names by label, and the images of each split."""
    try:
        document: Any = parse_json(read_text(file))
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("train"), list):
        raise DataError(f"{file}: expected the lists train, val and test of {ITEM}")
    names: dict[int, str] = {}
    items: dict[Split, list[Item]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        entries = document.get(split) or []
        if not isinstance(entries, list):
            raise DataError(f"{file}: {split}: expected a list of {ITEM}")
        for number, entry in enumerate(entries):
            where = f"{file}: {split}[{number}]"
            path, label, name = _item(entry, where)
            if names.setdefault(label, name) != name:
                raise DataError(f"{where}: label {label} is {name!r}, but was {names[label]!r} before")
            items[split].append((path, label))
    if not names:
        raise DataError(f"{file}: lists no images")
    return names, items


def _item(item: Any, where: str) -> tuple[str, int, str]:
    match item:
        case [str(path), label, str(name)] if path and name.strip():
            if isinstance(label, bool) or not isinstance(label, int) or label < 0:
                raise DataError(f"{where}: label {label!r} is not a whole number from 0 on")
            return path, label, name
    raise DataError(f"{where}: expected {ITEM}, found {item!r}")


def read_coop_split(file: Path) -> Listing:
    """The same in the order of the labels, which must be 0, 1, 2 … without a gap."""
    names, items = parse_coop(file)
    if sorted(names) != list(range(len(names))):
        gap = next(label for label in range(len(names) + 1) if label not in names)
        raise DataError(f"{file}: no image has label {gap}, though labels go up to {max(names)}")
    return Listing(tuple(names[label] for label in range(len(names))), **items)


def read_coop(file: Path, images: Path | None = None) -> LabelledImages:
    """Images of a split file.

    Args:
        images: the folder that paths are relative to; by default the first of the file's folder, `images` in it and
            its other subfolders in which the first image lies.
    """
    names, items = parse_coop(file)
    entries = [Entry(path, str(label), split) for split, found in items.items() for path, label in found]
    source = FolderSource(images or find_images(file, entries[0].key))
    if missing := source.missing([entry.key for entry in entries]):
        raise DataError(f"{file}: no such image: {source.describe(missing[0])} ({len(missing)} are missing)")
    labels = sorted(names)
    class_names = readable([names[label] for label in labels])
    order = tuple(map(str, labels))
    return LabelledImages(str(file), source, entries, order, dict(zip(order, class_names, strict=True)))


def find_images(file: Path, first: str) -> Path:
    """The folder that the paths of a split file are relative to, by its first image."""
    folder = file.parent
    subfolders = sorted(child for child in folder.iterdir() if child.is_dir())
    for candidate in (folder, folder / "images", *subfolders):
        if (candidate / first).is_file():
            return candidate
    raise DataError(
        f"{file}: its first image, {first}, lies neither in {folder} nor in a folder there. Say where they are in a "
        ".yaml file of tasks: images: FOLDER"
    )
