"""Makes a pack. What is finished stays when the process is killed: the next one goes on after it.

Images are decoded by threads and written in their order, chunk by chunk. When the pixels of a chunk are safely on
disk, one line about it goes into a journal; what the file holds beyond the journal does not count. The bytes are the
same whether or not there was an interruption.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import zlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tasso.data.images.decode import CorruptImageError, decode
from tasso.data.images.pack import INDEX, VERSION, Entry, Index, pack_files, pack_image
from tasso.data.task import ImageSet
from tasso.files import write_text
from tasso.progress import progress

log = logging.getLogger("tasso")

CHUNK = 128  # images between two lines of the journal
AHEAD = 256  # images that may wait, decoded and shrunk, to be written

Packed = tuple[Entry, bytes]


def build(
    folder: Path, images: ImageSet, stamps: Sequence[str], size: int, pool: ThreadPoolExecutor, skip: bool, title: str
) -> None:
    """Make the pack of a set, or go on with it. The caller holds the lock.

    Args:
        skip: leave out images that cannot be decoded; otherwise the first of them is an error.
    """
    pixels = folder / f"pixels-{_digest(stamps, size)}.u8"
    journal = pixels.with_suffix(".jsonl")
    if not journal.exists():  # nothing to go on with; whoever still looks at a damaged file keeps his
        pixels.unlink(missing_ok=True)
    with pixels.open("ab") as pixel_file, journal.open("ab") as journal_file:
        entries, journal_end = _finished(journal, pixels.stat().st_size)
        pixel_file.truncate(sum(entry.nbytes for entry in entries))
        journal_file.truncate(journal_end)
        if entries:
            log.info("packing %s: %d of %d images are there already", title, len(entries), len(images))
        _complain(entries, skip)
        packing = _packed(images, range(len(entries), len(images)), size, pool)
        # Closed at once when something goes wrong: else the threads would first decode all that waits.
        with progress(f"packing {title}", len(images), len(entries)) as advance, contextlib.closing(packing) as packed:
            while chunk := list(islice(packed, CHUNK)):
                _complain([entry for entry, _ in chunk], skip)
                _append(pixel_file, *(content for _, content in chunk))
                _append(journal_file, _line([entry for entry, _ in chunk]))
                entries += [entry for entry, _ in chunk]
                advance(len(chunk), "")
    write_text(folder / INDEX, Index.of(entries, pixels.name, size, stamps).to_json())  # from now on the pack counts
    for left in pack_files(folder):  # the journal, and whatever earlier packs and killed processes left
        if left != pixels:
            left.unlink(missing_ok=True)


def _digest(stamps: Sequence[str], size: int) -> str:
    """Another one when what is to be packed, or how, has changed: never goes on with another set's chunks."""
    return hashlib.sha256("\n".join([str(VERSION), str(size), *stamps]).encode()).hexdigest()[:12]


def _complain(entries: Sequence[Entry], skip: bool) -> None:
    """Raise the error of the first image that cannot be decoded, unless such images are left out."""
    if not skip and (message := next((entry.message for entry in entries if entry.message), None)):
        raise CorruptImageError(message)


def _packed(images: ImageSet, places: range, size: int, pool: ThreadPoolExecutor) -> Generator[Packed]:
    """The images in their order, decoded by threads some way ahead."""

    def pack(place: int) -> Packed:
        try:
            return pack_image(decode(images, place), size)
        except CorruptImageError as error:
            return Entry(message=str(error)), b""

    remaining = iter(places)
    waiting: deque[Future[Packed]] = deque(pool.submit(pack, place) for place in islice(remaining, AHEAD))
    try:
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(pack, place) for place in islice(remaining, 1))
    finally:
        for future in waiting:
            future.cancel()


def _append(file: BinaryIO, *contents: bytes) -> None:
    """Write, and wait until it is on disk."""
    file.writelines(contents)
    file.flush()
    os.fsync(file.fileno())


def _line(entries: Sequence[Entry]) -> bytes:
    """A chunk in the journal, with a checksum: a line that was torn off must not count."""
    text = json.dumps([dataclasses.astuple(entry) for entry in entries]).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _finished(journal: Path, pixels: int) -> tuple[list[Entry], int]:
    """The images that the journal tells of and a file of so many bytes holds; and where their lines end."""
    entries: list[Entry] = []
    end = held = 0
    for line in journal.read_bytes().splitlines(keepends=True):
        checksum, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
            break
        chunk = [Entry(*values) for values in json.loads(text)]
        held += sum(entry.nbytes for entry in chunk)
        if held > pixels:
            break
        entries += chunk
        end += len(line)
    return entries, end
