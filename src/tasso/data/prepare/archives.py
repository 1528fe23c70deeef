"""The files that a data set is made of: found in some folders or downloaded, and compared with their checksums."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasso.data.prepare.sources import Archive
from tasso.errors import DataError

log = logging.getLogger("tasso")

ARCHIVES = "archives"
DOWNLOADING = ".downloading-"


class MissingArchiveError(DataError):
    """A file that the user has to get."""


@dataclass(frozen=True)
class Identity:
    """What shows whether a file has changed."""

    bytes: int
    mtime_ns: int
    md5: str


def archive_folders(folder: Path, given: Path | None) -> list[Path]:
    """The folders that may have the archives of the data set in `folder`."""
    return [folder / ARCHIVES, folder, *([given / folder.name, given] if given else [])]


def find(archive: Archive, folders: Sequence[Path]) -> Path | None:
    """The file in the first folder that has it."""
    return next((folder / archive.file for folder in folders if (folder / archive.file).is_file()), None)


def identify(path: Path, before: Identity | None = None) -> Identity:
    """Identity of a file. The checksum is taken from `before` if size and time are the same."""
    status = path.stat()
    if before and (before.bytes, before.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return before
    from torchvision.datasets.utils import calculate_md5

    log.info("computing the MD5 checksum of %s", path)
    return Identity(status.st_size, status.st_mtime_ns, calculate_md5(path))


def check(archive: Archive, path: Path, identity: Identity) -> None:
    """Refuse a file with another checksum than the published one."""
    if archive.md5 and identity.md5 != archive.md5:
        raise DataError(
            f"{path}: its MD5 is {identity.md5}, not {archive.md5}: damaged, or another release. Get it again "
            f"({archive.url or archive.page}), or use --no-check-archives to go on with it"
        )


def download(archive: Archive, folder: Path) -> Path:
    """Download a file with torchvision. It gets its own name only when it is complete."""
    from torchvision.datasets.utils import download_url

    assert archive.url is not None
    target = folder / ARCHIVES / archive.file
    temporary = target.parent / f"{DOWNLOADING}{archive.file}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        download_url(archive.url, temporary, archive.file, archive.md5)
        (temporary / archive.file).replace(target)
    except Exception as error:  # of the network, the server or the checksum: torchvision raises many kinds
        reason = getattr(error, "reason", None)  # the network's own message, without urllib's wrapping
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else error
        raise MissingArchiveError(f"{archive.file} cannot be downloaded ({why})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def how_to_get(archive: Archive, folder: Path) -> str:
    """What the user has to do, exactly."""
    checksum = f" (MD5 {archive.md5})" if archive.md5 else ""
    return f"Get {archive.file}{checksum} from {archive.url or archive.page} and put it into {folder / ARCHIVES}"
