"""A pack: the images of one set, decoded and shrunk once, in one file that is mapped into memory.

The folder of a pack has `index.json` and the file of pixels that it names: image after image, each 3 × height ×
width bytes. The index is put in place last, so a pack without one does not count, whatever else lies there.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tasso.data.images.transforms import Indices, Sizes
from tasso.data.task import Array, ImageSet
from tasso.errors import DataError
from tasso.files import is_temporary, parse_json
from tasso.progress import progress

VERSION = 2  # of the format; a pack of another one is made again. 2: images are upright
INDEX = "index.json"


@dataclass(frozen=True)
class Entry:
    """One packed image. `message` says why there is none; all numbers are 0 then."""

    height: int = 0
    width: int = 0
    original_height: int = 0
    original_width: int = 0
    checksum: int = 0
    message: str = ""

    @property
    def nbytes(self) -> int:
        """Length of its pixels in the file."""
        return 3 * self.height * self.width


@dataclass(frozen=True)
class Index:
    """What lies where. All lists are as long as the set, also where an image could not be read (height 0)."""

    pixels: str  # name of the file
    size: int
    stamps: list[str]
    offsets: list[int]
    heights: list[int]
    widths: list[int]
    original_heights: list[int]
    original_widths: list[int]
    checksums: list[int]
    messages: dict[int, str]  # of the images that could not be read, by their place
    bytes: int

    @classmethod
    def of(cls, entries: Sequence[Entry], pixels: str, size: int, stamps: Sequence[str]) -> Index:
        """The index of images that lie one after another."""
        ends = np.cumsum([entry.nbytes for entry in entries], dtype=np.int64)
        return cls(
            pixels,
            size,
            list(stamps),
            [int(end) - entry.nbytes for end, entry in zip(ends, entries, strict=True)],
            [entry.height for entry in entries],
            [entry.width for entry in entries],
            [entry.original_height for entry in entries],
            [entry.original_width for entry in entries],
            [entry.checksum for entry in entries],
            {place: entry.message for place, entry in enumerate(entries) if entry.message},
            int(ends[-1]),
        )

    def to_json(self) -> str:
        """As the file has it."""
        return json.dumps({"version": VERSION, **vars(self)}, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Index:
        """Raises ValueError, with the reason, if this is not the index of a pack of this version."""
        document: Any = parse_json(text)
        if not isinstance(document, dict) or document.pop("version", None) != VERSION:
            raise ValueError(f"its format is not version {VERSION}")
        if set(document) != {field.name for field in dataclasses.fields(cls)}:
            raise ValueError(f"{INDEX} is incomplete")
        index = cls(**{**document, "messages": {int(place): text for place, text in document["messages"].items()}})
        lists = [value for value in vars(index).values() if isinstance(value, list)]
        if {len(values) for values in lists} != {len(index.stamps)}:
            raise ValueError(f"the lists of {INDEX} are not of one length")
        lengths = 3 * np.array(index.heights, dtype=np.int64) * np.array(index.widths, dtype=np.int64)
        if (np.cumsum(lengths) - lengths).tolist() != index.offsets or lengths.sum() != index.bytes:
            raise ValueError(f"the places in {INDEX} do not follow from the sizes")
        return index


class Pack:
    """An open pack. Images are views of the mapped file: nothing is read before it is looked at."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self.held = Sizes(np.array(index.heights, dtype=np.int64), np.array(index.widths, dtype=np.int64))
        self.original = Sizes(
            np.array(index.original_heights, dtype=np.int64), np.array(index.original_widths, dtype=np.int64)
        )
        # A plain array: slices of a memmap object are much slower to make.
        self._pixels: Array = np.empty(0, dtype=np.uint8)
        if index.bytes:
            self._pixels = np.asarray(np.memmap(folder / index.pixels, dtype=np.uint8, mode="r"))

    def image(self, place: int) -> Array:
        """Pixels of one image, 3 × height × width."""
        start, height, width = self.index.offsets[place], self.index.heights[place], self.index.widths[place]
        return self._pixels[start : start + 3 * height * width].reshape(3, height, width)

    @property
    def readable(self) -> Indices:
        """Places of the images that are there."""
        return np.flatnonzero(self.held.height).astype(np.int64)

    def verify(self, images: ImageSet, pool: ThreadPoolExecutor, title: str) -> None:
        """Compare all pixels with their checksums; the error names the first image that differs."""
        sums = self.index.checksums

        def differs(place: int) -> bool:
            return zlib.crc32(self.image(place).data) != sums[place]

        bad = []
        with progress(f"checking {title}", len(sums)) as advance:
            for place, wrong in enumerate(pool.map(differs, range(len(sums)))):
                if wrong:
                    bad.append(place)
                advance(1, "")
        if bad:
            raise DataError(
                f"{self.folder / self.index.pixels}: damaged: the pixels of {len(bad)} of {len(sums)} images have "
                f"changed since they were packed, the first is {images.keys[bad[0]]}. Remove the folder {self.folder}; "
                "it is made again when it is wanted"
            )


def open_pack(folder: Path, images: ImageSet, stamps: Sequence[str], size: int) -> Pack | str:
    """The pack that lies here, or why it cannot be used; the empty text if there is none."""
    try:
        text = (folder / INDEX).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        return f"{INDEX} is not readable: {error}"
    try:
        index = Index.from_json(text)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return str(error)
    if index.size != size or len(index.stamps) != len(stamps):
        return f"it holds {len(index.stamps)} images of size {index.size}, not {len(stamps)} of {size}"
    if changed := [place for place, stamp in enumerate(stamps) if index.stamps[place] != stamp]:
        first = images.source.describe(images.keys[changed[0]])
        return f"{len(changed)} of {len(stamps)} images have changed since, the first is {first}"
    try:
        found = (folder / index.pixels).stat().st_size
        if found != index.bytes:
            return f"{index.pixels} has {found} bytes, not {index.bytes}"
        return Pack(folder, index)
    except OSError as error:
        return f"{index.pixels} is not readable: {error.strerror}"


def shrink(image: Array, size: int) -> Array:
    """The image with its short side brought down to `size`, in the same proportions; smaller ones stay as they are.

    Bicubic and antialiased, as the models' own preprocessing shrinks images.
    """
    height, width = image.shape[:2]
    short = min(height, width)
    if short <= size:
        return image
    target = round(width * size / short), round(height * size / short)
    return np.asarray(Image.fromarray(image).resize(target, Image.Resampling.BICUBIC))


def pack_image(image: Array, size: int) -> tuple[Entry, bytes]:
    """An image as a pack holds it."""
    small = shrink(image, size)
    pixels = np.ascontiguousarray(small.transpose(2, 0, 1)).tobytes()
    height, width, original_height, original_width = *small.shape[:2], *image.shape[:2]
    return Entry(height, width, original_height, original_width, zlib.crc32(pixels)), pixels


def pack_files(folder: Path) -> Iterator[Path]:
    """Everything in a pack's folder but its index and its lock."""
    yield from (path for path in folder.iterdir() if path.name.startswith("pixels-") or is_temporary(path))
