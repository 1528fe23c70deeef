"""A pack: the images of one set, decoded and shrunk once, in one file that is mapped into memory.

A pack is a folder with `index.json` and the pixel file that the index names: image after image, each `(3, H, W)`
bytes. Both are written under a temporary name and then renamed, the index last. A pack without an index does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasso.data.images.transforms import Sizes
from tasso.data.task import Array, ImageSet
from tasso.decoding.views import Indices
from tasso.errors import DataError
from tasso.files import open_regular, parse_json, read_text

VERSION = 3  # of the format; a pack of another version is made again
INDEX = "index.json"


class DamagedPackError(DataError):
    """Index and pixels of a pack do not fit together."""


@dataclass(frozen=True)
class Index:
    """What a pack contains.

    Attributes:
        pixels: name of the pixel file.
        size: the short side that larger images were shrunk to.
        stamps: one per image, see `Stamped`.
        sizes: `(N, 4)`: height and width as packed, height and width of the original; zeros for an unreadable image.
        errors: why an image could not be read, by its index.
    """

    pixels: str
    size: int
    stamps: list[str]
    sizes: Indices
    errors: dict[int, str]

    def to_json(self) -> str:
        document = {"version": VERSION, **vars(self), "sizes": self.sizes.tolist()}
        return json.dumps(document, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Index | None:
        """None for an index of another version; a ValueError says what is wrong with it otherwise."""
        document: Any = parse_json(text)
        if isinstance(document, dict) and document.pop("version", VERSION) != VERSION:
            return None
        try:
            index = cls(**document)
            sizes = np.array(index.sizes, dtype=np.int64).reshape(len(index.stamps), 4)
            errors = {int(number): str(message) for number, message in index.errors.items()}
            return cls(str(index.pixels), int(index.size), list(index.stamps), sizes, errors)
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"not the fields of an index: {error}") from None


class Pack:
    """An open pack. Images are views of the mapped file: nothing is read before it is needed."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        lengths = image_bytes(index.sizes)
        self.nbytes = int(lengths.sum())
        self._offsets = (np.cumsum(lengths) - lengths).tolist()
        # A plain array: slices of a memmap object are much slower to make.
        self._pixels: Array = np.empty(0, dtype=np.uint8)
        if self.nbytes:
            self._file = open_regular(folder / index.pixels)
            self._pixels = np.asarray(np.memmap(self._file, dtype=np.uint8, mode="r"))

    @property
    def readable(self) -> Indices:
        """Indices of the images that could be read."""
        return np.flatnonzero(self.index.sizes[:, 0]).astype(np.int64)

    def image(self, index: int) -> Array:
        """Pixels of one image, `(3, H, W)` uint8."""
        if self.nbytes and (found := os.fstat(self._file.fileno()).st_size) < self.nbytes:
            # Reading beyond its end would end the process without a word.
            raise _damaged(self.folder / self.index.pixels, f"it was cut to {found} bytes while it is used")
        start, (height, width) = self._offsets[index], self.index.sizes[index, :2].tolist()
        return self._pixels[start : start + 3 * height * width].reshape(3, height, width)


def image_bytes(sizes: Indices) -> Indices:
    """Bytes of each image in the pixel file, `(N,)`, from sizes `(N, 4)`."""
    return 3 * sizes[:, 0] * sizes[:, 1]


def split_sizes(sizes: Indices) -> tuple[Sizes, Sizes]:
    """Sizes as packed and original sizes, from `(N, 4)`."""
    height, width, original_height, original_width = sizes.T
    return Sizes(height, width), Sizes(original_height, original_width)


def open_pack(folder: Path, images: ImageSet, stamps: Sequence[str]) -> Pack | str:
    """Open the pack of a set.

    Returns:
        The pack, or why it must be made (again); the empty text if there is none yet.

    Raises:
        DamagedPackError: names the file and says what to do.
    """
    try:
        index = Index.from_json(read_text(folder / INDEX))
    except FileNotFoundError:
        return ""
    except ValueError as error:
        raise _damaged(folder / INDEX, str(error)) from None
    if index is None:
        return f"its format is not version {VERSION}"
    if len(index.stamps) != len(stamps):
        return f"it has {len(index.stamps)} images, not {len(stamps)}"
    if changed := [number for number, stamp in enumerate(stamps) if index.stamps[number] != stamp]:
        first = images.source.describe(images.keys[changed[0]])
        return f"{len(changed)} of {len(stamps)} images have changed since, the first is {first}"
    file, expected = folder / index.pixels, int(image_bytes(index.sizes).sum())
    found = file.stat().st_size if file.is_file() else None
    if found != expected:
        raise _damaged(file, "it is missing" if found is None else f"it has {found} bytes, not {expected}")
    return Pack(folder, index)


def _damaged(file: Path, reason: str) -> DamagedPackError:
    return DamagedPackError(
        f"{file}: damaged: {reason}. Remove the folder {file.parent}; its images are packed again when they are needed"
    )
