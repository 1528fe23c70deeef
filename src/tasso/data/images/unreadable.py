"""Decodes every image of a set in parallel. What was readable is cached, so a repeated or resumed check is quick."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from tasso.data.images.decode import ImagePool, decode_all
from tasso.data.task import ImageSet, Stamped
from tasso.decoding.views import nothing
from tasso.errors import DataError
from tasso.progress import progress

CHUNK = 256  # images per cache entry


class CheckedImages:
    """A cache of chunks of images that were all readable: one digest of their names and stamps per line.

    It is in the user's cache folder, since the data may be on a read-only disk.
    """

    def __init__(self, file: Path | None = None) -> None:
        try:
            caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:  # a user without a home
            caches = Path(os.devnull)  # nothing can be read from there, nor written
        self.file = file or caches / "tasso" / "checked.txt"
        try:
            self.digests = set(self.file.read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError):
            self.digests = set()

    def add(self, digest: str) -> None:
        """A cache that cannot be written only costs time."""
        self.digests.add(digest)
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="ascii") as file:
                file.write(f"{digest}\n")


def unreadable(images: ImageSet, title: str, pool: ImagePool, cache: CheckedImages) -> dict[int, DataError]:
    """Decode all images that are not in the cache; returns those that cannot be decoded, by index.

    Images drawn by code are always readable and left out.
    """
    if not isinstance(images.source, Stamped):
        return {}
    errors: dict[int, DataError] = {}
    with progress(f"reading {title}", len(images)) as advance:
        for start in range(0, len(images), CHUNK):
            chunk = range(start, min(start + CHUNK, len(images)))
            digest = _digest(images, images.source, chunk)
            if digest is None or digest not in cache.digests:
                made = decode_all(images, chunk, pool, nothing, keep=DataError)
                found = {index: error for index, error in zip(chunk, made, strict=True) if error}
                errors |= found
                if digest and not found:
                    cache.add(digest)
            advance(len(chunk), f"{len(errors)} unreadable" if errors else "")
    return errors


def _digest(images: ImageSet, source: Stamped, indices: Sequence[int]) -> str | None:
    """None if an image is missing."""
    keys = [images.keys[index] for index in indices]
    try:
        stamps = source.stamps(keys)
    except (OSError, KeyError):
        return None
    text = "\n".join(f"{images.source.describe(key)}\0{stamp}" for key, stamp in zip(keys, stamps, strict=True))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
