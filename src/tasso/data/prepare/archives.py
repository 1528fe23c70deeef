"""The files that people download: found where they were put, fetched where torchvision knows an address, compared
with their checksums."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasso.data.prepare.sources import Archive
from tasso.data.prepare.unpack import CHUNK, Steps
from tasso.errors import DataError
from tasso.progress import progress

ARCHIVES = "archives"
DOWNLOADING = ".downloading-"


class MissingArchiveError(DataError):
    """A file that somebody has to get."""


@dataclass(frozen=True)
class Identity:
    """What tells whether a file is still the one that it was."""

    bytes: int
    mtime_ns: int
    md5: str


def places(folder: Path, given: Path | None) -> list[Path]:
    """Where the archives of the data set in `folder` may lie."""
    return [folder / ARCHIVES, folder, *([given / folder.name, given] if given else [])]


def find(archive: Archive, where: Sequence[Path]) -> Path | None:
    """The file, if somebody put it there."""
    return next((place / archive.file for place in where if (place / archive.file).is_file()), None)


def identify(path: Path, before: Identity | None = None) -> Identity:
    """Checksum of a file; taken from `before` if size and time are the same."""
    about = path.stat()
    if before and (before.bytes, before.mtime_ns) == (about.st_size, about.st_mtime_ns):
        return before
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file, progress(f"checking {path.name}, MiB", about.st_size // CHUNK) as advance:
        steps = Steps(advance)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            steps.add(len(chunk))
    return Identity(about.st_size, about.st_mtime_ns, digest.hexdigest())


def check(archive: Archive, path: Path, identity: Identity) -> None:
    """A known checksum is the right one."""
    if archive.md5 and identity.md5 != archive.md5:
        raise DataError(
            f"{path}: its MD5 is {identity.md5}, not {archive.md5}: damaged, or another release. Get it again "
            f"({archive.url or archive.page}), or use --check-archives false to go on with it"
        )


def download(archive: Archive, folder: Path) -> Path:
    """Fetch a file through torchvision. It lies under its own name only when it is whole."""
    from torchvision.datasets.utils import download_url

    assert archive.url is not None
    target = folder / ARCHIVES / archive.file
    beside = target.parent / f"{DOWNLOADING}{archive.file}"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        download_url(archive.url, beside, archive.file, archive.md5)
        (beside / archive.file).replace(target)
    # torchvision raises errors of many kinds: of the network, of a server, of a checksum.
    except Exception as error:
        reason = getattr(error, "reason", None)  # what the network said, without urllib's wrapping
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else error
        raise MissingArchiveError(f"{archive.file} cannot be downloaded ({why})") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def how_to_get(archive: Archive, folder: Path) -> str:
    """What a person has to do, exactly."""
    checksum = f" (MD5 {archive.md5})" if archive.md5 else ""
    return f"Get {archive.file}{checksum} from {archive.url or archive.page} and put it into {folder / ARCHIVES}"


def to_record(identities: dict[str, Identity]) -> dict[str, Any]:
    return {name: asdict(identity) for name, identity in identities.items()}


def from_record(record: Any) -> dict[str, Identity]:
    """What `to_record` made; nothing of what cannot be understood."""
    try:
        return {str(name): Identity(**values) for name, values in dict(record).items()}
    except (TypeError, ValueError):
        return {}
