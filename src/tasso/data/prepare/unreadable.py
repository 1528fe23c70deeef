"""Decodes every image of a set, in parallel, and remembers which ones were fine: to repeat it is quick, and what
was stopped goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasso.data.images.decode import decode
from tasso.data.task import ImageSet, Stamped
from tasso.errors import DataError
from tasso.progress import progress

CHUNK = 256  # images that are remembered together


class Memory:
    """Chunks of images that were all fine, one checksum of names and stamps a line. It lies in the user's cache:
    data may be on a disk that nobody may write to."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or cache_folder() / "checked.txt"
        try:
            self.known = set(self.file.read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError):
            self.known = set()

    def add(self, digest: str) -> None:
        """A cache that cannot be written only costs time."""
        self.known.add(digest)
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="ascii") as file:
                file.write(f"{digest}\n")


def cache_folder() -> Path:
    """Where the user's programs keep what they could make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tasso"


def unreadable(images: ImageSet, title: str, pool: ThreadPoolExecutor, memory: Memory | None) -> list[str]:
    """Decode all images that are not known to be fine; returns a message for each that cannot be.

    Images drawn by code cannot be unreadable and are left out.
    """
    if not isinstance(images.source, Stamped):
        return []
    wrong: list[str] = []
    with progress(f"reading {title}", len(images)) as advance:
        for places in chunks(len(images)):
            digest = _digest(images, places) if memory else None
            if digest is None or memory is None or digest not in memory.known:
                found = [message for message in pool.map(lambda i: _fault(images, i), places) if message]
                wrong += found
                if memory and digest and not found:
                    memory.add(digest)
            advance(len(places), f"{len(wrong)} unreadable" if wrong else "")
    return wrong


def chunks(count: int) -> Iterator[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def _fault(images: ImageSet, index: int) -> str | None:
    try:
        decode(images, index)
    except DataError as error:
        return str(error)
    return None


def _digest(images: ImageSet, places: Sequence[int]) -> str | None:
    """None if an image is not even there."""
    assert isinstance(images.source, Stamped)
    keys = [images.keys[place] for place in places]
    try:
        stamps = images.source.stamps(keys)
    except (OSError, KeyError):
        return None
    text = "\n".join(f"{images.source.describe(key)}\0{stamp}" for key, stamp in zip(keys, stamps, strict=True))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
