"""Writes a pack. Images are decoded by threads and written in their order, so the bytes do not depend on the threads.

A killed process leaves a temporary file; the next one removes it and begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

from tasso.data.images.decode import CorruptImageError, decode
from tasso.data.images.pack import INDEX, VERSION, Index, shrink
from tasso.data.task import Array, ImageSet
from tasso.files import is_temporary, write_atomically, write_text
from tasso.progress import progress

AHEAD = 256  # decoded images that may wait to be written

# Sizes of one image (as in `Index.sizes`) with its pixels (3, H, W), or the error of an image that cannot be decoded.
Packed = tuple[tuple[int, int, int, int], Array] | CorruptImageError


def build(
    folder: Path, images: ImageSet, stamps: Sequence[str], size: int, pool: ThreadPoolExecutor, skip: bool, title: str
) -> None:
    """Write the pack of a set. The caller has locked the folder.

    Args:
        skip: leave out images that cannot be decoded; otherwise the first of them is an error.
    """
    for path in filter(is_temporary, folder.iterdir()):  # of killed processes
        path.unlink(missing_ok=True)
    # Named by content: until the new index is in place, an older one still finds its own pixels.
    pixels = folder / f"pixels-{_digest(stamps, size)}.u8"
    sizes: list[tuple[int, int, int, int]] = []
    errors: dict[int, str] = {}

    def write(path: Path) -> None:
        # Closed at once when something goes wrong: else the threads would first decode all that is queued.
        packing = contextlib.closing(_packed(images, size, pool))
        with path.open("wb") as file, progress(f"packing {title}", len(images)) as advance, packing as packed:
            for number, result in enumerate(packed):
                if isinstance(result, CorruptImageError):
                    if not skip:
                        raise result
                    errors[number] = str(result)
                    sizes.append((0, 0, 0, 0))
                else:
                    sizes.append(result[0])
                    file.write(result[1].data)
                advance(1, "")

    write_atomically(pixels, write)
    index = Index(pixels.name, size, list(stamps), np.array(sizes, dtype=np.int64), errors)
    write_text(folder / INDEX, index.to_json())  # from now on the pack counts
    for path in folder.glob("pixels-*"):  # of earlier packs; a process that has one open keeps it
        if path != pixels:
            path.unlink(missing_ok=True)


def _digest(stamps: Sequence[str], size: int) -> str:
    return hashlib.sha256("\n".join([str(VERSION), str(size), *stamps]).encode()).hexdigest()[:12]


def _packed(images: ImageSet, size: int, pool: ThreadPoolExecutor) -> Generator[Packed]:
    """All images in their order, decoded by threads some way ahead."""

    def pack(index: int) -> Packed:
        try:
            image = decode(images, index)
        except CorruptImageError as error:
            return error
        small = shrink(image, size)
        return (*small.shape[:2], *image.shape[:2]), np.ascontiguousarray(small.transpose(2, 0, 1))

    remaining = iter(range(len(images)))
    waiting: deque[Future[Packed]] = deque(pool.submit(pack, index) for index in islice(remaining, AHEAD))
    try:
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(pack, index) for index in islice(remaining, 1))
    finally:
        for future in waiting:
            future.cancel()
