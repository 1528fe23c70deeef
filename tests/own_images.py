"""Atlas images as a user would have them: plain folders, tables, shards."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tasso.data import atlas

SIZE = 16


def image(domain: str, label: int, index: int) -> Image.Image:
    return Image.fromarray(atlas.render(domain, label, index, split="train", size=SIZE))


def directory_name(name: str) -> str:
    return name.replace(" ", "_")


def write_folder(
    folder: Path,
    domain: str,
    classes: int = 3,
    images: int = 5,
    name: Callable[[str], str] = directory_name,
    splits: tuple[str, ...] = ("",),
) -> Path:
    """A directory for each of the first classes of a domain, below each split if there are any."""
    for number, split in enumerate(splits):
        for label, class_name in enumerate(atlas.DOMAINS[domain].class_names[:classes]):
            place = folder / split / name(class_name)
            place.mkdir(parents=True, exist_ok=True)
            for index in range(images):
                image(domain, label, number * images + index).save(place / f"{index}.png")
    return folder


def write_table(file: Path, rows: list[str], header: str = "path,label") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def write_shard(file: Path, samples: dict[str, dict[str, bytes]]) -> Path:
    """A tar with the samples' files by ending."""
    with tarfile.open(file, "w") as archive:
        for key, files in samples.items():
            for ending, content in files.items():
                about = tarfile.TarInfo(f"{key}.{ending}")
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))
    return file


def png(domain: str, label: int, index: int) -> bytes:
    stored = io.BytesIO()
    image(domain, label, index).save(stored, "PNG")
    return stored.getvalue()


def write_coop(folder: Path, domain: str, classes: int = 3) -> Path:
    """CoOp's layout: a split file beside images/."""
    lists: dict[str, list[list[object]]] = {}
    for number, split in enumerate(("train", "val", "test")):
        for label, name in enumerate(atlas.DOMAINS[domain].class_names[:classes]):
            for index in range(2):
                path = f"{name.replace(' ', '_')}_{split}_{index}.png"
                (folder / "images").mkdir(parents=True, exist_ok=True)
                image(domain, label, 10 * number + index).save(folder / "images" / path)
                lists.setdefault(split, []).append([path, label, name.replace(" ", "_")])
    file = folder / f"split_zhou_{domain}.json"
    file.write_text(json.dumps(lists))
    return file
