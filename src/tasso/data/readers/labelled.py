"""What every reader of own images returns: images with labels, and which of them are for training and testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasso.data.annotated import FolderSource
from tasso.data.task import Source, Split, Task
from tasso.errors import DataError
from tasso.files import read_text as text_of

SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
# Files of a folder that count as images; a file that is named may have any suffix.
SUFFIXES = (
    ".avif", ".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip

# Images that are not read.
OTHER_SUFFIXES = (
    ".arw", ".cr2", ".cr3", ".dng", ".eps", ".heic", ".heif", ".ico", ".jp2", ".jxl", ".nef", ".orf", ".pef", ".psd",
    ".raf", ".raw", ".rw2", ".srw", ".svg", ".tga",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One image: its key in the source, its label as written there, and its split if it has one."""

    key: str
    label: str
    split: Split | None = None


@dataclass(frozen=True)
class LabelledImages:
    """All images of one data set.

    Attributes:
        where: the place of the data, for messages.
        source: where the images are read from.
        entries: one per image.
        labels: in the order in which they are numbered; None: in natural order (9 before 10).
        names: class names that the data give for their labels. A label without one is made readable.
        not_read: image files of kinds that tasso does not read.
    """

    where: str
    source: Source
    entries: Sequence[Entry]
    labels: tuple[str, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    not_read: Sequence[str] = ()


Item = tuple[str, int]  # a path below the folder of images, and a label


@dataclass(frozen=True)
class Listing:
    """Class names and images of a data set as its own lists have them."""

    class_names: tuple[str, ...]
    train: list[Item]
    val: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)

    @property
    def sets(self) -> dict[Split, list[Item]]:
        """Its images by split."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def spaced(self) -> Listing:
        """The same without underscores in class names."""
        return replace(self, class_names=tuple(name.replace("_", " ") for name in self.class_names))

    def task(self, images: Path) -> Task:
        """As a task, with the images in this folder."""
        return Task.of(images.name, self.class_names, FolderSource(images), self.sets)


def split_of(text: str, where: str) -> Split:
    """The split of this name or synonym; an error says where it was read."""
    split = SPLIT_NAMES.get(text.strip().lower())
    if split is None:
        raise DataError(f"{where}: no such split: {text!r}. There are train, val and test")
    return split


def is_image(name: str) -> bool:
    """Does the suffix say that this file is an image?"""
    return name.lower().endswith(SUFFIXES)


def label_text(value: Any) -> str:
    """A label as text; empty for what is neither text nor a whole number."""
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""


def read_text(file: Path) -> str:
    """The text of a file, without a byte order mark."""
    try:
        return text_of(file, "utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a readable text file: {error}") from None


def lines(file: Path) -> list[str]:
    """The lines of a list, without empty ones."""
    found = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    if not found:
        raise DataError(f"{file}: the list is empty")
    return found
