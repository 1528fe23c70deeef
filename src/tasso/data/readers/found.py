"""What every reader of own images gives: images with labels, and which of them are for training and testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tasso.data.task import Source
from tasso.errors import DataError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
# What counts as an image in a folder; a file that is named may have any ending.
SUFFIXES = (
    ".avif", ".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One image: its key in the source, its label as it is written there, and its split if it has one."""

    key: str
    label: str
    split: Split | None = None


@dataclass(frozen=True)
class Found:
    """All images of one place."""

    where: str  # for messages
    source: Source
    entries: Sequence[Entry]
    # Labels in the order in which they are numbered; None: sorted as people sort them.
    labels: tuple[str, ...] | None = None
    # Names of labels that the data bring along. Without one, a label is made readable.
    names: Mapping[str, str] = field(default_factory=dict)


def split_of(text: str, where: str) -> Split:
    """Which split a word means; the error names the place."""
    split = SPLIT_NAMES.get(text.strip().lower())
    if split is None:
        raise DataError(f"{where}: no such split: {text!r}. There are train, val and test")
    return split


def is_image(name: str) -> bool:
    """Does a file of this name hold an image?"""
    return name.lower().endswith(SUFFIXES)
