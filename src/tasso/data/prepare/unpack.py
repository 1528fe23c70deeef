"""Takes files out of archives. Nothing is written outside the folder, and no link is ever made."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from tasso.errors import DataError
from tasso.progress import Advance, progress

CHUNK = 1 << 20
BLOCK = 512  # of a tar
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_STREAMS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}

Member = tuple[str, IO[bytes]]
Picks = Sequence[tuple[str, str | None]]  # begin of a member's name → begin of its path, or None: left out


def unpack(archive: Path, picks: Picks, into: Path) -> int:
    """Unpack what `picks` ask for below `into`; the first that fits decides. Returns how many files.

    A file that is no archive is copied.
    """
    with reading(archive):
        size = archive.stat().st_size
        with archive.open("rb") as raw, progress(f"unpacking {archive.name}, MiB", size // CHUNK) as advance:
            taken = 0
            for name, content in _members(archive, raw, advance):
                if target := picked(name, picks):
                    write_member(content, into / target)
                    taken += 1
    if not taken:
        wanted = ", ".join(begin for begin, target in picks if target)
        raise DataError(f"{archive}: nothing in it begins with {wanted}; is it the right file?")
    return taken


class BadArchiveError(DataError):
    """The archive itself is damaged; to read it once more would not help."""


@contextlib.contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Errors while an archive is read and its content written, in words."""
    try:
        yield
    except DAMAGED as error:
        raise BadArchiveError(f"{archive}: damaged or cut off ({error}). Get it again") from None
    except OSError as error:
        raise DataError(f"{archive}: cannot be unpacked: {error.strerror or error} ({error.filename or ''})") from None
    except (RuntimeError, NotImplementedError) as error:  # zip: a password, or an unknown compression
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None


def picked(name: str, picks: Picks) -> str | None:
    """Where a member goes, or None if nobody wants it. Hidden files are what systems leave behind."""
    if any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts):
        return None
    for begin, target in picks:
        if name.startswith(begin):
            return target and target + name.removeprefix(begin)
    return None


def checked_name(name: str, archive: Path) -> str:
    """A member's name without `./`; one that leads out of the folder makes the whole archive suspect."""
    path = PurePosixPath(name)
    drive = ":" in path.parts[0] if path.parts else False
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or drive:
        raise DataError(f"{archive}: holds {name!r}, which leads out of the folder. Nothing was unpacked from it")
    return path.as_posix()


def write_member(content: IO[bytes], target: Path) -> None:
    """One file below the folder into which we unpack."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_new(target) as file:
        shutil.copyfileobj(content, file, CHUNK)


def open_new(target: Path) -> BinaryIO:
    """A place of its own, so that a test can let the disk be full."""
    return target.open("wb")


def _members(archive: Path, raw: BinaryIO, advance: Advance) -> Iterator[Member]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"PK"):
        yield from _zip_members(archive, raw, advance)
    elif archive.suffix == ".mat":
        yield archive.name, raw
    else:
        opener = next((opener for begin, opener in _STREAMS.items() if magic.startswith(begin)), None)
        yield from _tar_members(archive, raw, opener, advance)


def _zip_members(archive: Path, raw: BinaryIO, advance: Advance) -> Iterator[Member]:
    done = Steps(advance)
    with zipfile.ZipFile(raw) as opened:
        for entry in opened.infolist():
            name = checked_name(entry.filename, archive)
            if entry.is_dir():
                continue
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise DataError(f"{archive}: holds the link {name!r}; archives with links are not unpacked")
            with opened.open(entry) as content:
                yield name, content
            done.add(entry.compress_size)


def _tar_members(
    archive: Path, raw: BinaryIO, opener: Callable[[IO[bytes]], Any] | None, advance: Advance
) -> Iterator[Member]:
    """Members as they come. tarfile takes a tar that ends early for a whole one, so the end is looked at, too."""
    done, stream = Steps(advance), Tail(opener(raw) if opener else raw)
    # tarfile asks of a stream nothing but read.
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as opened:
        for member in opened:
            name = checked_name(member.name, archive)
            if member.isdir():
                continue
            content = opened.extractfile(member) if member.isfile() else None
            if content is None:
                raise DataError(f"{archive}: {name!r} is a link or a device; archives with such are not unpacked")
            yield name, content
            done.reach(raw.tell())
    while stream.read(CHUNK):  # the checksum of a compressed stream stands at its end
        pass
    if stream.tail.strip(b"\0"):
        raise tarfile.ReadError("it ends in the middle")


class Tail:
    """A stream that remembers the last block that was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.tail = stream, b""

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.tail = (self.tail + data)[-BLOCK:]
        return data


class Steps:
    """Bytes, told to a progress bar in MiB."""

    def __init__(self, advance: Advance) -> None:
        self.advance, self.bytes, self.told = advance, 0, 0

    def add(self, count: int) -> None:
        self.reach(self.bytes + count)

    def reach(self, total: int) -> None:
        self.bytes = total
        if whole := total // CHUNK - self.told:
            self.told += whole
            self.advance(whole, "")
