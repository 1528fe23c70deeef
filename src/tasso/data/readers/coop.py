"""CoOp's `split_zhou_*.json`: lists of [path, label, class name] for train, val and test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasso.data.annotated import FolderSource
from tasso.data.readers.found import SPLITS, Entry, Found
from tasso.data.readers.names import readable
from tasso.errors import DataError
from tasso.files import parse_json


def read_coop(file: Path, images: Path | None = None) -> Found:
    """Images of a split file.

    Args:
        images: the folder that paths are relative to; by default the first of the file's folder, `images` in it and
            its other subfolders in which the first image lies.
    """
    try:
        document: Any = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a readable text file: {error}") from None
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("train"), list):
        raise DataError(f"{file}: expected the lists train, val and test of [path, label, class name]")
    entries: list[Entry] = []
    names: dict[int, str] = {}
    for split in SPLITS:
        items = document.get(split) or []
        if not isinstance(items, list):
            raise DataError(f"{file}: {split}: expected a list of [path, label, class name]")
        for number, item in enumerate(items):
            path, label, name = _item(item, f"{file}: {split}[{number}]")
            if names.setdefault(label, name) != name:
                raise DataError(
                    f"{file}: {split}[{number}]: label {label} is {name!r}, but was {names[label]!r} before"
                )
            entries.append(Entry(path, str(label), split))
    if not entries:
        raise DataError(f"{file}: lists no images")
    labels = sorted(names)
    source = FolderSource(images or _images(file, entries[0].key))
    if missing := source.missing([entry.key for entry in entries]):
        raise DataError(f"{file}: no such image: {source.describe(missing[0])} ({len(missing)} are missing)")
    spoken = readable([names[label] for label in labels])
    order = tuple(map(str, labels))
    return Found(str(file), source, entries, order, dict(zip(order, spoken, strict=True)))


def _item(item: Any, where: str) -> tuple[str, int, str]:
    if not isinstance(item, list) or len(item) != 3:
        raise DataError(f"{where}: expected [path, label, class name], found {item!r}")
    path, label, name = item
    if not isinstance(path, str) or not path or not isinstance(name, str) or not name.strip():
        raise DataError(f"{where}: expected [path, label, class name], found {item!r}")
    if isinstance(label, bool) or not isinstance(label, int):
        raise DataError(f"{where}: label {label!r} is not a whole number")
    return path, label, name


def _images(file: Path, first: str) -> Path:
    folder = file.parent
    below = sorted(child for child in folder.iterdir() if child.is_dir())
    for candidate in (folder, folder / "images", *below):
        if (candidate / first).is_file():
            return candidate
    raise DataError(
        f"{file}: its first image, {first}, lies neither in {folder} nor in a folder there. Say where they are in a "
        ".yaml file of tasks: images: FOLDER"
    )
