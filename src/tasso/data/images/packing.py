"""Writes a pack. Images are decoded in parallel and written in their order, so the bytes do not depend on that.

A killed process leaves a temporary file; the next one removes it and begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tasso.data.images.decode import ImagePool, decode_all
from tasso.data.images.pack import INDEX, VERSION, Index
from tasso.data.task import ImageSet
from tasso.decoding.pillow import CorruptImageError
from tasso.decoding.views import shrunk
from tasso.files import is_temporary, write_atomically, write_text
from tasso.progress import progress


def build(folder: Path, images: ImageSet, stamps: Sequence[str], size: int, pool: ImagePool, title: str) -> None:
    """Write the pack of a set, without images that cannot be decoded. The caller has locked the folder."""
    for path in filter(is_temporary, folder.iterdir()):  # of killed processes
        path.unlink(missing_ok=True)
    # Named by content: until the new index is in place, an older one still finds its own pixels.
    pixels = folder / f"pixels-{_digest(stamps, size)}.u8"
    sizes: list[tuple[int, int, int, int]] = []
    errors: dict[int, str] = {}

    def write(path: Path) -> None:
        results = decode_all(images, range(len(images)), pool, partial(shrunk, size), keep=CorruptImageError)
        # Closed at once when something goes wrong: else the threads would first decode all that is queued.
        packing = contextlib.closing(results)
        with path.open("wb") as file, progress(f"packing {title}", len(images)) as advance, packing as packed:
            for number, result in enumerate(packed):
                if isinstance(result, CorruptImageError):
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
