"""The layout of the paper's authors: images/ and *_annotations.json, in a folder or in a zip."""

from __future__ import annotations

import bz2
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasso.data.task import SPLITS, ImageSet, Source, Task
from tasso.errors import DataError
from tasso.files import parse_json, read_bytes

# Before the content of each file in a zip: a mark, the lengths of its name and of another field, and these two.
HEADER, MARK = struct.Struct("<4s22xHH"), b"PK\3\4"
ENCRYPTED = 1
UNPACK: dict[int, Callable[[bytes], bytes]] = {
    zipfile.ZIP_STORED: bytes,
    zipfile.ZIP_DEFLATED: lambda content: zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, MAX_FILE + 1),
    zipfile.ZIP_BZIP2: lambda content: bz2.BZ2Decompressor().decompress(content, MAX_FILE + 1),
}
MAX_FILE = 2**28  # bytes of an encoded image, unpacked; a few in a zip may stand for many


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE // 2**20} MiB")
    return content


class FolderSource:
    """Images below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, key: str) -> bytes:
        return _bounded(read_bytes(self.root / key, MAX_FILE + 1))

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if not self._has(key)]

    def _has(self, key: str) -> bool:
        try:
            return (self.root / key).is_file()
        except (OSError, ValueError):  # no file has such a name
            return False

    def describe(self, key: str) -> str:
        return str(self.root / key)

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """Size and modification time."""
        files = [(self.root / key).stat() for key in keys]
        return [f"{file.st_size} {file.st_mtime_ns}" for file in files]


class ZipSource:
    """Images inside a zip, read without unpacking it.

    Several threads may read. Those of a ZipFile share a file position and wait for each other, so images are read from
    their own places in the file. Few bytes never become more than `MAX_FILE`, which a ZipFile would let them.
    """

    def __init__(self, archive: Path, opened: zipfile.ZipFile, prefix: str) -> None:
        self.archive, self.zip, self.prefix = archive, opened, prefix

    def read(self, key: str) -> bytes:
        entry = self.zip.getinfo(self.prefix + key)
        if entry.compress_type not in UNPACK:
            raise ValueError("its zip is compressed in a rare way; make it with Deflate")
        if entry.flag_bits & ENCRYPTED or self.zip.fp is None:
            return self.zip.read(entry)  # an error
        unpack, file = UNPACK[entry.compress_type], self.zip.fp.fileno()
        mark, *lengths = HEADER.unpack(os.pread(file, HEADER.size, entry.header_offset).ljust(HEADER.size))
        if mark != MARK:
            raise zipfile.BadZipFile(f"no file {entry.filename!r} where the zip's directory says")
        size = min(entry.compress_size, MAX_FILE + 1)
        content = _bounded(unpack(os.pread(file, size, entry.header_offset + HEADER.size + sum(lengths))))
        if zlib.crc32(content) != entry.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {entry.filename!r}")
        return content

    def missing(self, keys: Sequence[str]) -> list[str]:
        present = self.zip.NameToInfo
        return [key for key in keys if self.prefix + key not in present]

    def describe(self, key: str) -> str:
        return f"{self.archive}:{self.prefix}{key}"

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """Size and checksum, which are in the zip's directory."""
        entries = [self.zip.getinfo(self.prefix + key) for key in keys]
        return [f"{entry.file_size} {entry.CRC:08x}" for entry in entries]


def read_annotated(root: Path, name: str, prefix: str | None = None) -> Task:
    """The task `name` from ROOT/name/ or ROOT/name.zip.

    Args:
        root: the folder with all data sets.
        name: the data set's folder or zip.
        prefix: the annotation file is `<prefix>_annotations.json`; None takes the only one there is.
    """
    source, text, file = _open(root, name, prefix)
    try:
        document = parse_json(text)
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from None
    class_names = _class_names(document, file)
    splits = _splits(document, file)
    pairs = {split: _pairs(splits.get(split, []), split, len(class_names), file) for split in SPLITS}
    return Task.of(name, class_names, source, pairs)


def check_files(images: ImageSet, what: str, error: type[DataError] = DataError) -> None:
    """Check that all images exist; the error names the first that does not and counts the rest."""
    if missing := images.source.missing(images.keys):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise error(f"{what}: image missing: {images.source.describe(missing[0])}{more}")


PREPARE = "To get the data sets of the paper (mtil): tasso data prepare all --root"


def _open(root: Path, name: str, prefix: str | None) -> tuple[Source, str, str]:
    """Image source, text of the annotation file, and that file's name for messages.

    A folder with annotations takes precedence over a zip: it may be a corrected copy.
    """
    folder, archive = root / name, root / f"{name}.zip"
    unpacked = sorted(folder.glob("*annotations.json"))
    if unpacked or (folder.is_dir() and not archive.is_file()):
        file = _only(unpacked, folder, prefix)
        return FolderSource(folder / "images"), _text(read_bytes(file), str(file)), str(file)
    if archive.is_file():
        try:
            opened = zipfile.ZipFile(archive)
        except zipfile.BadZipFile:
            raise DataError(f"{archive}: not a zip file") from None
        inside = [Path(entry) for entry in opened.namelist() if entry.endswith("annotations.json")]
        entry = _only(inside, archive, prefix)
        folder_inside = "" if entry.parent == Path() else f"{entry.parent.as_posix()}/"
        where = f"{archive}:{entry.as_posix()}"
        try:
            content = ZipSource(archive, opened, "").read(entry.as_posix())
        except (ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{where}: {error}") from None
        return ZipSource(archive, opened, f"{folder_inside}images/"), _text(content, where), where
    raise DataError(
        f"data set {name!r} not found: neither the folder {folder} nor the file {archive} exists. {PREPARE} {root}"
    )


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text: {error}") from None


def _only(candidates: list[Path], where: Path, prefix: str | None) -> Path:
    """The annotation file with this prefix, or the only one there is."""
    expected = f"{prefix}_annotations.json" if prefix else "*_annotations.json"
    exact = [path for path in candidates if prefix and path.name == expected]
    if found := exact or candidates:
        if len(found) == 1:
            return found[0]
        raise DataError(f"{where}: several annotation files ({', '.join(p.name for p in found)}), expected {expected}")
    raise DataError(f"{where}: annotation file {expected} not found. {PREPARE} {where.parent}")


def _class_names(document: Any, file: str) -> tuple[str, ...]:
    names = document.get("class_names") if isinstance(document, dict) else None
    if not isinstance(names, list) or not names:
        raise DataError(f"{file}: 'class_names' must be a list of names")
    first: dict[str, int] = {}
    for label, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{file}: class_names[{label}] is empty or not text: {name!r}")
        if (earlier := first.setdefault(name.strip(), label)) != label:
            raise DataError(f"{file}: class_names[{label}] repeats class_names[{earlier}]: {name!r}")
    return tuple(names)


def _splits(document: Any, file: str) -> dict[str, Any]:
    splits = document.get("data")
    if not isinstance(splits, dict) or not isinstance(splits.get("train"), list):
        raise DataError(f"{file}: 'data' must have the lists 'train', 'val' and 'test'")
    if unknown := sorted(set(splits) - set(SPLITS)):
        raise DataError(f"{file}: data.{unknown[0]} is not one of train, val, test")
    for split, entries in splits.items():
        if not isinstance(entries, list):
            raise DataError(f"{file}: data.{split} must be a list, not {entries!r}")
    return splits


def _pairs(entries: Any, split: str, classes: int, file: str) -> list[tuple[str, int]]:
    pairs: list[tuple[str, int]] = []
    for index, entry in enumerate(entries):
        where = f"{file}: data.{split}[{index}]"
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
            raise DataError(f"{where}: expected [path, label], found {entry!r}")
        path, label = entry
        if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < classes:
            raise DataError(f"{where}: label {label!r} is not one of 0 … {classes - 1}")
        if not path or path.startswith("/") or (".." in path and ".." in Path(path).parts):
            raise DataError(f"{where}: path {path!r} does not lie in the images folder")
        pairs.append((path, label))
    return pairs
