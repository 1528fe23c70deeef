"""WebDataset shards: tar files in which a sample's image and label are neighbouring files.

Training needs random access, so the shards are indexed once by their headers and images are then read at their offsets.
This needs uncompressed tars, and nothing but the standard library.
"""

from __future__ import annotations

import itertools
import math
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tasso.data.readers.labelled import SPLIT_NAMES, Entry, LabelledImages, is_image, label_text
from tasso.data.task import Source, Split
from tasso.errors import DataError, shortened
from tasso.files import open_regular, parse_json
from tasso.progress import progress

LABELS = ("cls", "txt", "json")  # in this order
JSON_KEYS = ("label", "class", "class_name", "cls")
MAX_LABEL_BYTES = 2**16
SPLIT = re.compile(rf"(?<![a-z])({'|'.join(SPLIT_NAMES)})(?![a-z])")
RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")
MAX_SHARDS = 100_000


@dataclass(frozen=True)
class Member:
    """A file within a shard."""

    shard: Path
    offset: int
    size: int


class ShardSource(Source):
    """Keys are `shard:member`."""

    def __init__(self, members: dict[str, Member]) -> None:
        self.members = members

    def read(self, key: str) -> bytes:
        member = self.members[key]
        with open_regular(member.shard) as file:  # opened per read: threads must not share a file position
            file.seek(member.offset)
            return file.read(member.size)

    def describe(self, key: str) -> str:
        return f"{self.members[key].shard}:{key.partition(':')[2]}"

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """Offset and size of an image in its shard, with the shard's size and modification time."""
        files = {shard: shard.stat() for shard in {self.members[key].shard for key in keys}}
        found = [(self.members[key], files[self.members[key].shard]) for key in keys]
        return [f"{m.offset} {m.size} {file.st_size} {file.st_mtime_ns}" for m, file in found]


def is_shards(pattern: str) -> bool:
    """Does this name tar files?"""
    return pattern.endswith((".tar", ".tar.gz", ".tgz"))


def read_shards(pattern: str) -> LabelledImages:
    """Images of the shards that a path, a pattern (`*`) or a range (`{000..009}`) names.

    A sample is all files whose names agree up to the first dot. Its label is in `.cls`, `.txt` or `.json`. If all
    shards have train, val or test in their names, these are their splits.
    """
    shards = _shards(pattern)
    splits = {shard: _split(shard) for shard in shards}
    if None in splits.values() and len(set(splits.values())) > 1:
        without = next(shard for shard, split in splits.items() if split is None)
        raise DataError(f"{pattern}: some shards have train, val or test in their names and {without.name} has not")
    members: dict[str, Member] = {}
    entries: list[Entry] = []
    with progress(f"indexing {Path(pattern).name}", len(shards)) as advance:
        for number, shard in enumerate(shards):
            for image, label in _samples(shard):
                key = f"{number}:{image.name}"
                members[key] = Member(shard, image.offset_data, image.size)
                entries.append(Entry(key, label, splits[shard]))
            advance(1, "")
    if not entries:
        raise DataError(f"{pattern}: there are no samples in it")
    return LabelledImages(pattern, ShardSource(members), entries)


def _shards(pattern: str) -> list[Path]:
    parts: list[Sequence[str]] = []
    for place, part in enumerate(re.split(RANGE, pattern)):
        if place % 3 == 0:
            parts.append([part])
        elif place % 3 == 1:
            low = part
        else:
            parts.append([f"{number:0{len(low)}d}" for number in _range(int(low), int(part), pattern)])
    if math.prod(map(len, parts)) > MAX_SHARDS:
        raise _too_many(pattern)
    names = map("".join, itertools.product(*parts))
    found = [match for name in map(Path, names) for match in _glob(name)]
    if not found:
        raise DataError(f"{pattern}: no such shards")
    for shard in found:
        if not shard.is_file():
            raise DataError(f"{shard}: no such shard")
        if shard.suffix != ".tar":
            raise DataError(f"{shard}: a compressed tar cannot be read image by image; unpack it to a plain .tar")
    return found


def _range(low: int, high: int, pattern: str) -> range:
    if high - low >= MAX_SHARDS:
        raise _too_many(pattern)
    return range(low, high + 1)


def _too_many(pattern: str) -> DataError:
    return DataError(f"{shortened(pattern)}: names more than {MAX_SHARDS:,} shards")


def _glob(pattern: Path) -> list[Path]:
    return sorted(pattern.parent.glob(pattern.name)) if "*" in pattern.name else [pattern]


def _split(shard: Path) -> Split | None:
    splits = {SPLIT_NAMES[word] for word in SPLIT.findall(shard.stem.lower())}
    if len(splits) > 1:
        raise DataError(f"{shard}: its name has several of train, val and test")
    return splits.pop() if splits else None


def _samples(shard: Path) -> list[tuple[tarfile.TarInfo, str]]:
    """Image and label of each sample, in the order of the shard."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with open_regular(shard) as file, tarfile.open(fileobj=file, mode="r:") as opened:
            for member in opened:
                if not member.isfile():
                    continue
                path = PurePosixPath(member.name)
                stem, _, suffix = path.name.partition(".")
                if stem:  # not a hidden file
                    samples.setdefault(str(path.parent / stem), {})[suffix.lower()] = member
            return [_sample(opened, shard, name, files) for name, files in samples.items()]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{shard}: not a readable tar file: {error}") from None


def _sample(
    opened: tarfile.TarFile, shard: Path, name: str, files: dict[str, tarfile.TarInfo]
) -> tuple[tarfile.TarInfo, str]:
    where = f"{shard}: sample {name!r}"
    images = [member for suffix, member in files.items() if is_image(f".{suffix}")]
    if len(images) != 1:
        raise DataError(f"{where}: expected one image, found {len(images)} ({', '.join(files)})")
    suffix = next((suffix for suffix in LABELS if suffix in files), None)
    if suffix is None:
        raise DataError(f"{where}: no label; expected .cls, .txt or .json beside the image, found {', '.join(files)}")
    if files[suffix].size > MAX_LABEL_BYTES:
        raise DataError(f"{where}: its .{suffix} is too large for a label")
    content = opened.extractfile(files[suffix])
    try:
        text = content.read().decode("utf-8").strip() if content else ""
        value = parse_json(text) if suffix == "json" else text
    except ValueError as error:
        raise DataError(f"{where}: its .{suffix} cannot be read: {error}") from None
    if suffix == "json":
        value = next((value[key] for key in JSON_KEYS if key in value), None) if isinstance(value, dict) else None
    if not (label := label_text(value)):
        raise DataError(f"{where}: its .{suffix} has no label" + (f" ({', '.join(JSON_KEYS)})" * (suffix == "json")))
    return images[0], label
