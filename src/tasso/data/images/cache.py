"""Which image sets are kept in memory, decoded: one budget for all sets of a run."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from tasso.data.images.decode import ImagePool, decode, decode_all
from tasso.data.images.packed import PackedPixels
from tasso.data.images.packs import Packs
from tasso.data.images.pixels import DecodedPixels, MixedSizesError, OneSizePixels, Pixels
from tasso.data.images.shared import shared_images
from tasso.data.task import Array, ImageSet
from tasso.decoding.views import Indices, Preprocess, planes
from tasso.progress import progress

log = logging.getLogger("tasso")

GIB = 2**30
CPU = torch.device("cpu")
MEMINFO = Path("/proc/meminfo")
CGROUP, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
LIMITS = (
    ("memory.max", "memory.current", "file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),  # version 1
)


class PixelCache:
    """The image sets of a run. Those of one size are decoded once and kept in memory as long as the budget allows.

    A set that needs room takes it from the sets least recently asked for, but not from those of the same phase, which
    are in use. Sets without room are read when needed. A view of an image has the same bits wherever it comes from.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        device: torch.device,
        pool: ImagePool,
        limit_gib: float,
        packs: Packs | None = None,
    ) -> None:
        """
        Args:
            device: where images are kept.
            limit_gib: of all sets together.
            packs: images are read from these where they have them.
        """
        self.preprocess, self.device, self.pool, self.packs = preprocess, device, pool, packs
        self.limit = limit_gib * GIB
        self._sets: dict[Hashable, Pixels] = {}  # the least recently asked for comes first
        self._in_use: set[Hashable] = set()
        self._passing: set[Hashable] = set()  # of those in use, the sets that are dropped when the phase ends
        self._reported: set[str] = set()
        self._reader = ThreadPoolExecutor(1)  # of sets that are read ahead
        self._read_ahead: dict[Hashable, Future[Pixels]] = {}
        self._waiting: list[OneSizePixels] = []  # those in the host's memory; only the reader uses this
        self._closed = threading.Event()

    def begin_phase(self) -> None:
        """The sets asked for until now are no longer in use: a task ends, or an evaluation."""
        for key in self._passing:
            pixels = self._sets.pop(key, None)
            if isinstance(pixels, OneSizePixels):
                pixels.stack = None  # whoever still has them reads them
        self._passing.clear()
        self._in_use.clear()

    def pixels(self, images: ImageSet, what: str, *, keep: bool = True) -> Pixels:
        """The images of a set; in use until the next phase begins.

        Args:
            what: names them in messages.
            keep: they may be asked for in later phases, too.
        """
        key = (images.source, images.keys)
        if keep:
            self._passing.discard(key)
        elif key not in self._sets:
            self._passing.add(key)
        if key in self._sets:
            pixels = self._sets.pop(key)
        elif key in self._read_ahead:
            pixels = self._read_ahead.pop(key).result()
        else:
            pixels = self._open(images)
        if isinstance(pixels, OneSizePixels) and pixels.stack is None:
            pixels = self._load(pixels, images, what)
        self._sets[key] = pixels
        self._in_use.add(key)
        return pixels

    def read_ahead(self, images: ImageSet) -> None:
        """Begin to read a set that will be asked for, after those before it, into the host's memory: of what is free,
        half is for them together.

        A thread does it and uses no device, so that training can go on. What goes wrong is raised by `pixels`.
        """
        key = (images.source, images.keys)
        if not (self._closed.is_set() or key in self._sets or key in self._read_ahead):
            self._read_ahead[key] = self._reader.submit(self._opened_ahead, images)

    def close(self) -> None:
        """Stop reading ahead."""
        self._closed.set()
        self._reader.shutdown(cancel_futures=True)

    def _opened_ahead(self, images: ImageSet) -> Pixels:
        pixels = self._open(images)
        if not isinstance(pixels, OneSizePixels) or pixels.checked:  # of packs and shared files there is no need
            return pixels
        self._waiting = [other for other in self._waiting if other.ahead is not None]
        held = sum(other.nbytes for other in self._waiting)
        try:
            if held + pixels.nbytes <= min(self.limit, (free_memory(CPU) + held) // 2):
                pixels.read_ahead(self._closed.is_set)
                self._waiting.append(pixels)
        except MixedSizesError:
            return DecodedPixels(images, self.preprocess, self.device, self.pool)
        return pixels

    def _load(self, pixels: OneSizePixels, images: ImageSet, what: str) -> Pixels:
        """The set, in memory if there is room; another kind of pixels if its images are of several sizes."""
        with progress(f"reading {what}", len(images)) as advance:
            try:
                pixels.load(lambda: self._make_room(pixels.nbytes, what), lambda count: advance(count, ""))
            except MixedSizesError:
                return DecodedPixels(images, self.preprocess, self.device, self.pool)
        return pixels

    def _open(self, images: ImageSet) -> Pixels:
        """A set of which nothing is in memory yet. Images that are not packed are taken to be of one size."""
        if self.packs and (locations := self.packs.find(images)) is not None:
            packed = PackedPixels(locations, self.preprocess, self.device, self.pool)
            if not packed.one_size:
                return packed
            read: Callable[[Indices], Iterable[Array]] = packed.copies
            first, checked = packed.image(0), True
        elif (shared := shared_images(images)) is not None:
            first, checked, read = shared[0], True, partial(map, shared.__getitem__)
        else:
            first, checked = planes(decode(images, 0)), False
            read = partial(decode_all, images, pool=self.pool, view=planes, nbytes=first.nbytes)
        channels, height, width = first.shape
        shape = (len(images), channels, height, width)
        return OneSizePixels(
            shape, read, self.preprocess, self.device, checked, lambda index: images.source.describe(images.keys[index])
        )

    def _make_room(self, nbytes: int, what: str) -> bool:
        """Evict sets until there is room for one more; False, and nothing is evicted, if that would not be enough."""
        loaded = self._loaded()
        held = sum(pixels.nbytes for pixels in loaded.values())
        # The other half is for training.
        limit = min(self.limit, (free_memory(self.device) + held) // 2)
        in_use = sum(pixels.nbytes for key, pixels in loaded.items() if key in self._in_use)
        if in_use + nbytes > limit:
            if self.limit and what not in self._reported:
                self._reported.add(what)
                bound = "--cache-gib" if limit == self.limit else f"half of the free memory of {self.device}"
                log.info(
                    "%s: not kept in memory, read when needed: %.2f GiB beside %.2f in use do not fit into %.2f (%s)",
                    what, nbytes / GIB, in_use / GIB, limit / GIB, bound,
                )  # fmt: skip
            return False
        excess = held + nbytes - limit
        for key, pixels in loaded.items():
            if excess > 0 and key not in self._in_use:
                pixels.stack = None
                excess -= pixels.nbytes
        return True

    def _loaded(self) -> dict[Hashable, OneSizePixels]:
        """The sets in memory, the least recently asked for first."""
        return {
            key: pixels
            for key, pixels in self._sets.items()
            if isinstance(pixels, OneSizePixels) and pixels.stack is not None
        }


def free_memory(device: torch.device) -> int:
    """Bytes that are free where the tensors of a device live."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by PyTorch's allocator
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *_left_of_limits()])


def _left_of_limits() -> Iterator[int]:
    """What the limits around this process leave: those of its control groups (a container's, a job's of Slurm), of
    version 2 or 1, and of all groups around these."""
    groups = {CGROUP, CGROUP / "memory"}  # in a container its own group may be the root
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                group = (CGROUP / "memory" if controllers else CGROUP) / path.lstrip("/")
                groups.update((group, *(outer for outer in group.parents if CGROUP in outer.parents)))
    for group, (limit, used, cached) in itertools.product(groups, LIMITS):
        with contextlib.suppress(OSError, KeyError, ValueError):  # no such group, or one without a limit
            left = int((group / limit).read_text()) - int((group / used).read_text())
            counted = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            yield max(0, left + int(counted[cached]))  # cached files give way
