"""ImageNet's training archive: a tar with one tar per class. Images are listed and drawn before any is unpacked, so
that only the reference images take space on the disk. (torchvision's `parse_train_archive` unpacks everything.)"""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tasso.data.prepare.unpack import BLOCK, checked_name, reading, write_member
from tasso.data.readers.split import draw
from tasso.errors import DataError
from tasso.progress import progress


def unpack_reference(archive: Path, into: Path, count: int, seed: int) -> list[str]:
    """Unpack `count` images (0: all) as `<class>/<file>` below `into`; returns their paths in the order of the draw.

    They are drawn as the benchmark draws them from the full list, which is sorted by class and file.
    """
    with reading(archive), tarfile.open(archive, "r:") as outer:
        classes = sorted(_classes(archive, outer), key=lambda member: member.name)
        names = _list(archive, outer, classes)
        chosen = [names[index] for index in draw(len(names), count or len(names), seed)]
        chosen_files: dict[str, set[str]] = defaultdict(set)
        for name in chosen:
            synset, _, file = name.partition("/")
            chosen_files[synset].add(file)
        with progress(f"unpacking {archive.name}", len(chosen)) as advance:
            for member in classes:
                folder = into / PurePosixPath(member.name).stem
                folder.mkdir(parents=True, exist_ok=True)  # every class counts for the labels
                files = chosen_files[folder.name]
                for inner, image, name in _images(archive, outer, member) if files else ():
                    if name in files:
                        content = inner.extractfile(image)
                        assert content is not None  # _images yields files only
                        write_member(content, folder / name)
                        advance(1, "")
    return chosen


def _classes(archive: Path, outer: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    size, end = archive.stat().st_size, 0
    for member in outer:
        name = PurePosixPath(checked_name(member.name, archive))
        if not member.isfile() or name.suffix != ".tar" or len(name.parts) != 1:
            raise DataError(f"{archive}: contains {member.name!r}; expected one tar per class, such as n01440764.tar")
        if member.offset_data + member.size > size:
            raise tarfile.ReadError(f"it ends in the middle of {name}")
        end = member.offset_data + -(-member.size // BLOCK) * BLOCK
        yield member
    if end + BLOCK > size:  # tarfile takes a tar without its end for a complete one
        raise tarfile.ReadError("its end is missing")


def _list(archive: Path, outer: tarfile.TarFile, classes: list[tarfile.TarInfo]) -> list[str]:
    names = []
    with progress(f"listing {archive.name}, classes", len(classes)) as advance:
        for member in classes:
            folder = PurePosixPath(member.name).stem
            names += sorted(f"{folder}/{name}" for _, _, name in _images(archive, outer, member))
            advance(1, "")
    return names


def _images(
    archive: Path, outer: tarfile.TarFile, member: tarfile.TarInfo
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str]]:
    with tarfile.open(fileobj=outer.extractfile(member), mode="r:") as inner:
        for image in inner:
            name = checked_name(image.name, archive)
            if not image.isfile() or "/" in name:
                raise DataError(f"{archive}: {member.name} contains {name!r}, which is no image of a class")
            yield inner, image, name
