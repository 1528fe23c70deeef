"""The packs of a run: each set of a sequence is packed once, then its images are found one by one."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tasso.config import RunConfig
from tasso.data.damaged import listed
from tasso.data.images.decode import ImagePool
from tasso.data.images.pack import DamagedPackError, Pack, open_pack
from tasso.data.images.packing import build
from tasso.data.task import AsStored, ImageSet, JoinedSource, Source, Stamped, Task, TaskSequence
from tasso.decoding.views import Preprocess
from tasso.errors import ConfigError, DataError
from tasso.files import locked

log = logging.getLogger("tasso")

Location = tuple[Pack, int]  # a pack, and the index of an image in it


@dataclass(frozen=True)
class Report:
    """One set that is packed."""

    name: str
    images: int
    left_out: int
    bytes: int
    seconds: float


class Packs:
    """A folder with one pack per set."""

    def __init__(self, folder: Path, size: int, skip: bool, pool: ImagePool, own: bool = False) -> None:
        """
        Args:
            size: short side of packed images; smaller ones are kept as they are.
            skip: leave out training and reference images that cannot be decoded.
            own: the tasks are the user's, whose unreadable images can all be left out when they are loaded.
        """
        self.folder, self.size, self.skip, self.pool, self.own = folder, size, skip, pool, own
        self.reports: list[Report] = []
        self.left_out: dict[str, list[str]] = {}  # keys of unreadable images by the name of their set
        self._locations: dict[tuple[Source, str], Location] = {}

    def packed(self, sequence: TaskSequence, *, train: bool = True) -> TaskSequence:
        """Pack the sets of a sequence, or open their packs. The sequence returned has only readable images.

        Args:
            train: training images and reference images too, not only those that accuracies are measured on.
        """

        def add(images: ImageSet, name: str, may_skip: bool) -> ImageSet:
            return self.add(images, f"{sequence.benchmark} {name}", may_skip=may_skip)

        def packed_task(task: Task) -> Task:
            # An evaluated image is never skipped: the score would be that of another set.
            task = task.with_evaluated(add(task.evaluated, f"{task.name} {task.split}", False))
            return dataclasses.replace(task, train=add(task.train, f"{task.name} train", True)) if train else task

        tasks = tuple(packed_task(task) for task in sequence.tasks)
        reference = sequence.reference
        if reference and train:
            reference = add(reference, "reference", True)
        return dataclasses.replace(sequence, tasks=tasks, reference=reference)

    def add(self, images: ImageSet, name: str, *, may_skip: bool) -> ImageSet:
        """Pack one set, or open its pack. Returns its readable images.

        A set whose source has no stamps is not packed: its images are drawn by code.
        """
        if not isinstance(images.source, Stamped):
            return images
        started = time.perf_counter()
        skip = self.skip and may_skip
        try:
            pack = self._open(images, images.source.stamps(images.keys), name)
        except OSError as error:
            raise DataError(f"pack_dir: cannot pack {name} in {self.folder}: {error}") from None
        readable, errors = pack.readable, pack.index.errors
        if errors:
            text = f"{name}: {listed(errors.values(), len(images))}"
            if not skip or not len(readable):
                raise DataError(f"{text}. {_advice(may_skip or self.own)}")
            log.warning("%s. They are left out", text)
            self.left_out[name] = [images.keys[index] for index in errors]
        self._locations.update({(images.source, images.keys[index]): (pack, index) for index in readable.tolist()})
        seconds = time.perf_counter() - started
        self.reports.append(Report(name, len(readable), len(errors), pack.nbytes, seconds))
        return images.subset(readable) if errors else images

    def find(self, images: ImageSet) -> list[Location] | None:
        """Where each of these images is packed; None if one of them is in no pack.

        The images may be a part of one set, or of several that were joined.
        """
        locations = []
        for key in images.keys:
            source: Source = images.source
            while isinstance(source, JoinedSource):
                source, key = source.find(key)
            if (location := self._locations.get((source, key))) is None:
                return None
            locations.append(location)
        return locations

    def _open(self, images: ImageSet, stamps: list[str], name: str) -> Pack:
        folder = self.folder / self._folder_name(images, name)
        try:
            found = open_pack(folder, images, stamps)
            if isinstance(found, Pack):  # needs neither the lock nor write permission
                return found
            folder.mkdir(parents=True, exist_ok=True)
        except DamagedPackError:
            pass  # another process may just be replacing it: look again under the lock
        with locked(folder, lambda: log.info("%s: another process is packing it; waiting", name)):
            found = open_pack(folder, images, stamps)
            if isinstance(found, str):
                if found:
                    log.info("packing %s again: %s", name, found)
                build(folder, images, stamps, self.size, self.pool, name)
                found = open_pack(folder, images, stamps)
        if isinstance(found, str):
            raise DataError(f"{folder}: cannot be used after packing {name}: {found or 'it is gone'}")
        return found

    def _folder_name(self, images: ImageSet, name: str) -> str:
        """Other images under the same name, such as a smaller test set, are another pack; so is another size.

        Images as stored and images turned upright are different packs, too.
        """
        digest = hashlib.sha256("\n".join(images.keys).encode()).hexdigest()[:10]
        plain = re.sub(r"[^\w.-]+", "-", name)
        kind = "-as-stored" if isinstance(images.source, AsStored) else ""
        return f"{plain}-{self.size}{kind}-{digest}"


def _advice(may_skip: bool) -> str:
    if may_skip:
        return "Replace or remove them, or use --corrupt skip to do without them"
    return "Replace them: an image to evaluate on is never left out, since the score would be that of another set"


def open_packs(config: RunConfig, pool: ImagePool, preprocess: Preprocess | None = None) -> Packs | None:
    """The packs that a configuration asks for, large enough for the model; None if it asks for none."""
    if config.pack_dir is None:
        return None
    if preprocess and config.pack_size < preprocess.size:
        raise ConfigError(
            f"pack_size: must be at least {preprocess.size}, the size of the model's images, not {config.pack_size}"
        )
    return Packs(config.pack_dir, config.pack_size, config.corrupt == "skip", pool, bool(config.tasks))
