"""A folder, or a zip, with a directory for each class; above them there may be train, val and test."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

from tasso.data.annotated import FolderSource, ZipSource
from tasso.data.readers.found import SPLIT_NAMES, SUFFIXES, Entry, Found, is_image
from tasso.data.task import Source
from tasso.errors import DataError

LAYOUT = "expected one directory for each class, or train/ and test/ with such directories"


def read_folder(place: Path) -> Found:
    """Images by class directories; what lies deeper belongs to the class above it."""
    source, files, directories = listed(place)
    images = [PurePosixPath(file) for file in files if is_image(file)]
    if not images:
        raise DataError(f"{place}: {_no_images(files)}; {LAYOUT}")
    parts = sorted({image.parts[0] for image in images if len(image.parts) > 1} | {d[0] for d in directories})
    depth = 1 if parts and all(part.lower() in SPLIT_NAMES for part in parts) else 0
    if loose := [image for image in images if len(image.parts) < depth + 2]:
        raise DataError(f"{place}: {loose[0]} lies in no class directory ({len(loose)} such images); {LAYOUT}")
    entries = [
        Entry(str(image), image.parts[depth], SPLIT_NAMES[image.parts[0].lower()] if depth else None)
        for image in images
    ]
    filled = {image.parts[: depth + 1] for image in images}
    for directory in directories:
        if len(directory) == depth + 1 and directory not in filled:
            inside = [file for file in files if PurePosixPath(file).parts[: depth + 1] == directory]
            raise DataError(
                f"{place / Path(*directory)}: {_no_images(inside)}; put images of this class there, or remove it"
            )
    return Found(str(place), source, sorted(entries, key=lambda entry: entry.key))


def images_below(place: Path) -> tuple[Source, list[str]]:
    """All images of a folder or zip, whatever their directories."""
    source, files, _ = listed(place)
    keys = sorted(file for file in files if is_image(file))
    if not keys:
        raise DataError(f"{place}: {_no_images(files)}")
    return source, keys


def listed(place: Path) -> tuple[Source, list[str], list[tuple[str, ...]]]:
    """Source, files and directories (as their parts) of a folder or zip. Hidden ones are left out."""
    if place.is_dir():
        return FolderSource(place), *_walked(place)
    try:
        opened = zipfile.ZipFile(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{place}: not a readable zip file: {error}") from None
    names = [PurePosixPath(name) for name in opened.namelist() if not name.endswith("/")]
    names = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.parts)]
    top = {name.parts[0] for name in names}
    # Most zips have one folder with everything in it; that is no class.
    prefix = f"{top.pop()}/" if len(top) == 1 and all(len(name.parts) > 1 for name in names) else ""
    inside = [str(name)[len(prefix) :] for name in names]
    return ZipSource(place, opened, prefix), inside, []


def _walked(place: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """Links are followed, but not in circles."""
    files: list[str] = []
    directories: list[tuple[str, ...]] = []
    seen = {os.path.realpath(place)}
    for here, below, names in os.walk(place, onerror=_refuse, followlinks=True):
        inside = Path(here).relative_to(place)
        kept = []
        for name in sorted(below):
            real = os.path.realpath(Path(here, name))
            if not name.startswith(".") and real not in seen:
                kept.append(name)
                seen.add(real)
                directories.append((*inside.parts, name))
        below[:] = kept
        files += [(inside / name).as_posix() for name in sorted(names) if not name.startswith(".")]
    return files, directories


def _refuse(error: OSError) -> None:
    """A folder that cannot be looked into must not quietly be a class without images."""
    raise DataError(f"{error.filename}: cannot be read: {error.strerror}")


def _no_images(files: list[str]) -> str:
    kinds = Counter(PurePosixPath(file).suffix.lower() or "no ending" for file in files).most_common(3)
    found = f" (there are files with {', '.join(kind for kind, _ in kinds)})" if kinds else ""
    return f"no images here{found}; tasso reads {' '.join(SUFFIXES)}"
