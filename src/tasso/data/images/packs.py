"""The packs of a run: each set of a sequence is packed once, then found again image by image."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tasso.config import RunConfig
from tasso.data.images.decode import CorruptImageError
from tasso.data.images.pack import Pack, open_pack
from tasso.data.images.packing import build
from tasso.data.images.transforms import Preprocess
from tasso.data.task import ImageSet, JoinedSource, Source, Stamped, Task, TaskSequence
from tasso.errors import ConfigError, DataError
from tasso.files import locked

log = logging.getLogger("tasso")

Place = tuple[Pack, int]  # an image in a pack


@dataclass(frozen=True)
class Report:
    """One set that is packed now."""

    name: str
    images: int
    left_out: int
    bytes: int
    seconds: float


class Packs:
    """A folder with one pack a set."""

    def __init__(self, folder: Path, size: int, skip: bool, pool: ThreadPoolExecutor) -> None:
        """
        Args:
            size: short side of packed images; smaller ones are kept as they are.
            skip: leave out training and reference images that cannot be decoded.
        """
        self.folder, self.size, self.skip, self.pool = folder, size, skip, pool
        self.reports: list[Report] = []
        self._places: dict[tuple[Source, str], Place] = {}

    def packed(self, sequence: TaskSequence, *, train: bool = True, verify: bool = False) -> TaskSequence:
        """Pack the sets of a sequence, or find their packs. Images that were left out are not in what is returned.

        Args:
            train: training images and reference images too, not only the test images.
            verify: compare the pixels of all packs with their checksums.
        """

        def add(images: ImageSet, name: str, may_skip: bool) -> ImageSet:
            return self.add(images, f"{sequence.benchmark} {name}", may_skip=may_skip, verify=verify)

        def whole(task: Task) -> Task:
            # A test image is never skipped: the score would be that of another test set.
            test = add(task.test, f"{task.name} test", False)
            return dataclasses.replace(
                task, test=test, train=add(task.train, f"{task.name} train", True) if train else task.train
            )

        tasks = tuple(whole(task) for task in sequence.tasks)
        reference = sequence.reference
        if reference and train:
            reference = add(reference, "reference", True)
        return dataclasses.replace(sequence, tasks=tasks, reference=reference)

    def add(self, images: ImageSet, name: str, *, may_skip: bool, verify: bool = False) -> ImageSet:
        """Pack one set, or find its pack. Returns its readable images.

        Sources that cannot tell whether an image has changed are not packed; they are drawn by code.
        """
        if not isinstance(images.source, Stamped):
            return images
        started = time.perf_counter()
        skip = self.skip and may_skip
        try:
            pack = self._opened(images, images.source.stamps(images.keys), name, skip)
        except CorruptImageError as error:
            raise DataError(f"{name}: {error}. {self._advice(may_skip)}") from None
        except OSError as error:
            raise DataError(f"pack_dir: cannot pack {name} in {self.folder}: {error}") from None
        readable, messages = pack.readable, pack.index.messages
        if messages:
            first = next(iter(messages.values()))
            text = f"{name}: {len(messages)} of {len(images)} images cannot be read, the first: {first}"
            if not skip or not len(readable):
                raise DataError(f"{text}. {self._advice(may_skip)}")
            log.warning("%s. They are left out", text)
        if verify:
            pack.verify(images, self.pool, name)
        self._places.update({(images.source, images.keys[place]): (pack, place) for place in readable.tolist()})
        seconds = time.perf_counter() - started
        self.reports.append(Report(name, len(readable), len(messages), pack.index.bytes, seconds))
        return images.subset(readable) if messages else images

    def find(self, images: ImageSet) -> list[Place] | None:
        """Where these images lie, also if they are but a part of sets that were packed; None if one is in no pack."""
        places = []
        for key in images.keys:
            source: Source = images.source
            while isinstance(source, JoinedSource):
                source, key = source.find(key)
            if (place := self._places.get((source, key))) is None:
                return None
            places.append(place)
        return places

    def _opened(self, images: ImageSet, stamps: list[str], name: str, skip: bool) -> Pack:
        folder = self.folder / self._folder_name(images, name)
        found = open_pack(folder, images, stamps, self.size)
        if isinstance(found, Pack):  # needs neither the lock nor the right to write
            return found
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, lambda: log.info("%s: another process is packing it; waiting", name)):
            found = open_pack(folder, images, stamps, self.size)  # once more: we may have waited for it
            if isinstance(found, str):
                if found:
                    log.info("packing %s again: %s", name, found)
                build(folder, images, stamps, self.size, self.pool, skip, name)
                found = open_pack(folder, images, stamps, self.size)
        if isinstance(found, str):
            raise DataError(f"{folder}: cannot be used after packing {name}: {found or 'it is gone'}")
        return found

    def _folder_name(self, images: ImageSet, name: str) -> str:
        """Other images of the same name, as a smaller test set has them, are another pack."""
        which = hashlib.sha256("\n".join(images.keys).encode()).hexdigest()[:10]
        plain = re.sub(r"[^\w.-]+", "-", name)
        return f"{plain}-{self.size}-{which}"

    @staticmethod
    def _advice(may_skip: bool) -> str:
        if may_skip:
            return "Replace it, or use --corrupt skip to learn without such images"
        return "Replace it: a test image is never left out, since the score would be that of another test set"


def open_packs(config: RunConfig, pool: ThreadPoolExecutor, preprocess: Preprocess | None = None) -> Packs | None:
    """The packs that a configuration asks for, large enough for the model; None if it asks for none."""
    if config.pack_dir is None:
        return None
    if preprocess and config.pack_size < preprocess.size:
        raise ConfigError(
            f"pack_size: must be at least {preprocess.size}, the size of the model's images, not {config.pack_size}"
        )
    return Packs(config.pack_dir, config.pack_size, config.corrupt == "skip", pool)
