"""WebDataset shards: tar files in which a sample's image and label stand side by side.

Training needs any image at any time, so the shards are indexed once by their headers and then read at the noted
places. Only plain tars can be read so; nothing but the standard library is needed.
"""

from __future__ import annotations

import itertools
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tasso.data.readers.found import SPLIT_NAMES, Entry, Found, Split, is_image
from tasso.errors import DataError
from tasso.files import parse_json
from tasso.progress import progress

LABELS = ("cls", "txt", "json")  # in this order
JSON_KEYS = ("label", "class", "class_name", "cls")
LONGEST_LABEL = 2**16
SPLIT = re.compile(rf"(?<![a-z])({'|'.join(SPLIT_NAMES)})(?![a-z])")
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@dataclass(frozen=True)
class Member:
    """A file within a shard."""

    shard: Path
    offset: int
    size: int


class ShardSource:
    """Keys are `shard:member`."""

    def __init__(self, members: dict[str, Member]) -> None:
        self.members = members

    def read(self, key: str) -> bytes:
        member = self.members[key]
        with member.shard.open("rb") as file:  # of its own for each reader: threads must not share a position
            file.seek(member.offset)
            return file.read(member.size)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if key not in self.members]

    def describe(self, key: str) -> str:
        member = self.members.get(key)
        return f"{member.shard}:{key.partition(':')[2]}" if member else key

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """Where an image lies in its shard, with the shard's size and time of the last change."""
        files = {shard: shard.stat() for shard in {self.members[key].shard for key in keys}}
        found = [(self.members[key], files[self.members[key].shard]) for key in keys]
        return [f"{m.offset} {m.size} {file.st_size} {file.st_mtime_ns}" for m, file in found]


def is_shards(place: str) -> bool:
    """Does this name tar files?"""
    return place.endswith((".tar", ".tar.gz", ".tgz"))


def read_shards(place: str) -> Found:
    """Images of the shards that a path, a pattern (`*`) or a range (`{000..009}`) names.

    A sample is all files whose names agree up to the first dot. Its label is in `.cls`, `.txt` or `.json`. The words
    train, val and test in the shards' names are their splits, if all have one.
    """
    shards = _shards(place)
    splits = {shard: _split(shard) for shard in shards}
    if None in splits.values() and len(set(splits.values())) > 1:
        without = next(shard for shard, split in splits.items() if split is None)
        raise DataError(f"{place}: some shards have train, val or test in their names and {without.name} has not")
    members: dict[str, Member] = {}
    entries: list[Entry] = []
    with progress(f"indexing {Path(place).name}", len(shards)) as advance:
        for number, shard in enumerate(shards):
            for image, label in _samples(shard):
                key = f"{number}:{image.name}"
                members[key] = Member(shard, image.offset_data, image.size)
                entries.append(Entry(key, label, splits[shard]))
            advance(1, "")
    if not entries:
        raise DataError(f"{place}: there are no samples in it")
    return Found(place, ShardSource(members), entries)


def _shards(place: str) -> list[Path]:
    ranges = [
        [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)] for low, high in RANGE.findall(place)
    ]
    names = [RANGE.sub("{}", place).format(*choice) for choice in itertools.product(*ranges)] if ranges else [place]
    found = [match for name in map(Path, names) for match in _matching(name)]
    if not found:
        raise DataError(f"{place}: no such shards")
    for shard in found:
        if not shard.is_file():
            raise DataError(f"{shard}: no such shard")
        if shard.suffix != ".tar":
            raise DataError(f"{shard}: a compressed tar cannot be read image by image; unpack it to a plain .tar")
    return found


def _matching(pattern: Path) -> list[Path]:
    return sorted(pattern.parent.glob(pattern.name)) if "*" in pattern.name else [pattern]


def _split(shard: Path) -> Split | None:
    words = {SPLIT_NAMES[word] for word in SPLIT.findall(shard.stem.lower())}
    if len(words) > 1:
        raise DataError(f"{shard}: its name has several of train, val and test")
    return words.pop() if words else None


def _samples(shard: Path) -> list[tuple[tarfile.TarInfo, str]]:
    """Image and label of each sample, in their order."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with tarfile.open(shard, "r:") as opened:
            for member in opened:
                if not member.isfile():
                    continue
                path = PurePosixPath(member.name)
                stem, _, ending = path.name.partition(".")
                if stem:  # not a hidden file
                    samples.setdefault(str(path.parent / stem), {})[ending.lower()] = member
            return [_sample(opened, shard, name, files) for name, files in samples.items()]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{shard}: not a readable tar file: {error}") from None


def _sample(
    opened: tarfile.TarFile, shard: Path, name: str, files: dict[str, tarfile.TarInfo]
) -> tuple[tarfile.TarInfo, str]:
    where = f"{shard}: sample {name!r}"
    images = [member for ending, member in files.items() if is_image(f".{ending}")]
    if len(images) != 1:
        raise DataError(f"{where}: expected one image, found {len(images)} ({', '.join(files)})")
    ending = next((ending for ending in LABELS if ending in files), None)
    if ending is None:
        raise DataError(f"{where}: no label; expected .cls, .txt or .json beside the image, found {', '.join(files)}")
    if files[ending].size > LONGEST_LABEL:
        raise DataError(f"{where}: its .{ending} is too large for a label")
    content = opened.extractfile(files[ending])
    try:
        text = content.read().decode("utf-8").strip() if content else ""
        label = _from_json(parse_json(text)) if ending == "json" else text
    except ValueError as error:
        raise DataError(f"{where}: its .{ending} cannot be read: {error}") from None
    if not label:
        raise DataError(f"{where}: its .{ending} has no label" + (f" ({', '.join(JSON_KEYS)})" * (ending == "json")))
    return images[0], label


def _from_json(value: Any) -> str:
    found = [value[key] for key in JSON_KEYS if key in value] if isinstance(value, dict) else []
    return str(found[0]).strip() if found and isinstance(found[0], str | int) else ""
