"""Takes files out of archives. Nothing is written outside the folder, and no link is ever created.

torchvision's `extract_archive` checks neither, and cannot take out single files.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from tasso.errors import DataError
from tasso.progress import progress

MIB = 1 << 20
BLOCK = 512  # of a tar
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile)

Member = tuple[str, IO[bytes]]
Picks = Mapping[str, str | None]  # prefix of a member's name → prefix of its path, or None: left out


def unpack(archive: Path, picks: Picks, into: Path) -> int:
    """Unpack the members that `picks` select below `into`; the first prefix that fits decides.

    A .mat file is no archive and is copied.

    Returns:
        The number of files.
    """
    count = done = 0
    size = archive.stat().st_size // MIB
    with reading(archive), archive.open("rb") as raw, progress(f"unpacking {archive.name}, MiB", size) as advance:
        for name, content in _members(archive, raw):
            if target := picked(name, picks):
                write_member(content, into / target)
                count += 1
            position = raw.tell() // MIB
            advance(max(0, position - done), "")
            done = max(done, position)
    if not count:
        expected = ", ".join(prefix for prefix, target in picks.items() if target)
        raise DataError(f"{archive}: nothing in it begins with {expected}; is it the right file?")
    return count


class BadArchiveError(DataError):
    """The archive itself is damaged; reading it again would not help."""


@contextlib.contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Turn the errors of reading an archive and writing its content into messages."""
    try:
        yield
    except DAMAGED as error:
        raise BadArchiveError(f"{archive}: damaged or cut off ({error}). Get it again") from None
    except OSError as error:
        raise DataError(f"{archive}: cannot be unpacked: {error.strerror or error} ({error.filename or ''})") from None
    except (RuntimeError, NotImplementedError) as error:  # zip: a password, or an unknown compression
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None


def picked(name: str, picks: Picks) -> str | None:
    """The path of a member below the target folder, or None if it is left out. Hidden files always are."""
    if any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts):
        return None
    for prefix, target in picks.items():
        if name.startswith(prefix):
            return target and target + name.removeprefix(prefix)
    return None


def checked_name(name: str, archive: Path) -> str:
    """A member's name without `./`. A name that leads out of the folder makes the whole archive suspect."""
    path = PurePosixPath(name)
    drive = ":" in path.parts[0] if path.parts else False
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or drive:
        raise DataError(f"{archive}: contains {name!r}, which leads out of the folder. Nothing was unpacked from it")
    return path.as_posix()


def write_member(content: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_new(target) as file:
        shutil.copyfileobj(content, file, MIB)


def open_new(target: Path) -> BinaryIO:
    """A function of its own, so that a test can simulate a full disk."""
    return target.open("wb")


def _members(archive: Path, raw: BinaryIO) -> Iterator[Member]:
    if archive.suffix == ".mat":
        return iter([(archive.name, raw)])
    is_zip = raw.read(2) == b"PK"
    raw.seek(0)
    return _zip_members(archive, raw) if is_zip else _tar_members(archive, raw)


def _zip_members(archive: Path, raw: BinaryIO) -> Iterator[Member]:
    with zipfile.ZipFile(raw) as opened:
        for entry in opened.infolist():
            name = checked_name(entry.filename, archive)
            if entry.is_dir():
                continue
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise DataError(f"{archive}: contains the link {name!r}; archives with links are not unpacked")
            with opened.open(entry) as content:
                yield name, content


def _tar_members(archive: Path, raw: BinaryIO) -> Iterator[Member]:
    with tarfile.open(fileobj=raw, mode="r:*") as opened:
        for member in opened:
            name = checked_name(member.name, archive)
            if member.isdir():
                continue
            content = opened.extractfile(member) if member.isfile() else None
            if content is None:
                raise DataError(f"{archive}: {name!r} is a link or a device; archives with such are not unpacked")
            yield name, content
        # tarfile takes a tar that is cut off between two members for a complete one. A compressed stream has its
        # checksum at the end; a plain tar ends in zeros.
        stream = opened.fileobj
        while stream and stream.read(MIB):
            pass
        if stream is raw:
            raw.seek(-BLOCK, os.SEEK_END)
            if raw.read().strip(b"\0"):
                raise tarfile.ReadError("it ends in the middle")
