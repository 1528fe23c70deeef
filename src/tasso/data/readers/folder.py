"""A folder or zip with one directory per class; above them there may be train, val and test."""

from __future__ import annotations

import logging
import os
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

from tasso.data.annotated import FolderSource, ZipSource
from tasso.data.readers.labelled import OTHER_SUFFIXES, SPLIT_NAMES, SUFFIXES, Entry, LabelledImages, is_image
from tasso.data.task import ImageSet, Source
from tasso.errors import DataError
from tasso.files import not_too_deep, open_regular

log = logging.getLogger("tasso")

LAYOUT = "expected one directory per class, or train/ and test/ with such directories"
HIDDEN = (".", "__MACOSX")  # how names begin that are left out


def read_folder(path: Path) -> LabelledImages:
    """Images by class directories; deeper directories belong to the class above them."""
    source, files, directories = list_files(path)
    images = [PurePosixPath(file) for file in files if is_image(file)]
    if not images:
        raise DataError(f"{path}: {_no_images(files)}; {LAYOUT}")
    parts = sorted({image.parts[0] for image in images if len(image.parts) > 1} | {d[0] for d in directories})
    depth = 1 if parts and all(part.lower() in SPLIT_NAMES for part in parts) else 0
    if loose := [image for image in images if len(image.parts) < depth + 2]:
        raise DataError(f"{path}: {loose[0]} lies in no class directory ({len(loose)} such images); {LAYOUT}")
    entries = [
        Entry(str(image), image.parts[depth], SPLIT_NAMES[image.parts[0].lower()] if depth else None)
        for image in images
    ]
    if path.is_dir() and not depth and all(len(image.parts) > 2 for image in images):
        tasks = " ".join(f"{part}={path / part}" for part in parts[:3]) + (" …" if len(parts) > 3 else "")
        log.warning(
            "%s: the images of all its classes lie in folders below them. If these classes are tasks: --tasks %s",
            path, tasks,
        )  # fmt: skip
    filled = {image.parts[: depth + 1] for image in images}
    for directory in directories:
        if len(directory) == depth + 1 and directory not in filled:
            inside = [file for file in files if PurePosixPath(file).parts[: depth + 1] == directory]
            raise DataError(
                f"{path / Path(*directory)}: {_no_images(inside)}; put images of this class there, or remove it"
            )
    if path.is_dir():
        _check_links(path, [file for file in files if len(PurePosixPath(file).parts) <= depth + 1])
    not_read = [file for file in files if file.lower().endswith(OTHER_SUFFIXES)]
    return LabelledImages(str(path), source, sorted(entries, key=lambda entry: entry.key), not_read=not_read)


def _check_links(path: Path, files: list[str]) -> None:
    """A link to a folder that is gone is listed as a file, and must not silently be a class less."""
    for link in (path / file for file in files):
        if link.is_symlink() and not link.exists():
            raise DataError(f"{link}: a link to {link.readlink()}, which is not there; correct the link, or remove it")


def find_all_images(path: Path) -> ImageSet:
    """All images of a folder or zip, in any directory, without labels."""
    source, files, _ = list_files(path)
    keys = sorted(file for file in files if is_image(file))
    if not keys:
        raise DataError(f"{path}: {_no_images(files)}")
    return ImageSet.of(source, [(key, 0) for key in keys])


def list_files(path: Path) -> tuple[Source, list[str], list[tuple[str, ...]]]:
    """Source, files and directories (as tuples of their parts) of a folder or zip. Hidden ones are left out."""
    if path.is_dir():
        return FolderSource(path), *_walk(path)
    try:
        open_regular(path).close()
        opened = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable zip file: {error}") from None
    names = [PurePosixPath(name) for name in opened.namelist() if not name.endswith("/")]
    names = [name for name in names if not any(part.startswith(HIDDEN) for part in name.parts)]
    top = {name.parts[0] for name in names}
    # Most zips have one top folder with everything in it; that is no class.
    prefix = f"{top.pop()}/" if len(top) == 1 and all(len(name.parts) > 1 for name in names) else ""
    inside = [str(name)[len(prefix) :] for name in names]
    return ZipSource(path, opened, prefix), inside, []


def _walk(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """Files and directories below a folder. Links are followed, each directory once: no endless loops."""
    files: list[str] = []
    directories: list[tuple[str, ...]] = []
    visited = {os.path.realpath(path)}
    with not_too_deep(path):
        for here, subfolders, names in os.walk(path, onerror=_refuse, followlinks=True):
            relative = Path(here).relative_to(path)
            new = []
            for name in sorted(subfolders):
                real = os.path.realpath(Path(here, name))
                if not name.startswith(HIDDEN) and real not in visited:
                    new.append(name)
                    visited.add(real)
                    directories.append((*relative.parts, name))
            subfolders[:] = new
            files += [(relative / name).as_posix() for name in sorted(names) if not name.startswith(".")]
    return files, directories


def _refuse(error: OSError) -> None:
    """A folder that cannot be read must not silently become a class without images."""
    raise DataError(f"{error.filename}: cannot be read: {error.strerror}")


def _no_images(files: list[str]) -> str:
    kinds = Counter(PurePosixPath(file).suffix.lower() or "no suffix" for file in files).most_common(3)
    found = f" (there are files with {', '.join(kind for kind, _ in kinds)})" if kinds else ""
    return f"no images here{found}; tasso reads {' '.join(SUFFIXES)}"
