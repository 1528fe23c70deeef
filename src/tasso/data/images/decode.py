"""Images of a set become pixels: one by one, or many at once in threads and processes."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from tasso.data.task import Array, Draws, ImageSet, NotTurned
from tasso.decoding.pillow import NOT_READABLE, CorruptImageError
from tasso.decoding.processes import end_idle, view_all_elsewhere
from tasso.decoding.views import Decoded, Indices
from tasso.decoding.worker import Stored, View, view_all
from tasso.errors import DataError

PROCESSES_FROM = 512  # images of a set; for fewer it does not pay to start processes
PROCESSES = 32  # at most
AHEAD = 256  # decoded images that may wait to be used
# So much of small ones. Parts of few of them would keep threads waiting for the interpreter's lock.
AHEAD_BYTES = 2**24
CHUNK_BYTES = 2**28  # of decoded images that are handled at once


class ImagePool(ThreadPoolExecutor):
    """Threads that read images. For large sets each has a process that decodes them."""

    def __init__(self, workers: int, processes_from: float = PROCESSES_FROM) -> None:
        """`processes_from`: sets of so many images are decoded in other processes, if there are several workers."""
        super().__init__(workers)
        self.workers, self.processes_from = workers, processes_from

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The processes end, too: each run of a sweep would keep as many as there are cores."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        end_idle()


def thread_pool(workers: int) -> ImagePool:
    """As many threads as asked for; 0: one per core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ImagePool(workers or min(cores, PROCESSES))


def decode(images: ImageSet, index: int) -> Array:
    """Pixels of one image, `(H, W, 3)` uint8. An error names the image."""
    [image] = _views(images, [index], _as_array, [None])
    if isinstance(image, DataError):
        raise image
    return image  # type: ignore[no-any-return]


def decode_all(
    images: ImageSet,
    indices: Sequence[int] | Indices,
    pool: ImagePool,
    view: View,
    arguments: Sequence[Any] | Array | None = None,
    *,
    keep: type[DataError] | tuple[()] = (),
    nbytes: int = 0,
) -> Generator[Any]:
    """`view(image, argument)` of many images, in their order, made some way ahead. An error names the image.

    Args:
        view: of an image, a Pillow image or `(H, W, 3)` uint8; it is pickled.
        arguments: one per image; None: all are None.
        keep: errors of this kind take the place of their images, instead of being raised.
        nbytes: as in `made_ahead`, of a view.
    """
    elsewhere = pool.workers > 1 and len(images) >= pool.processes_from

    def views(part: slice) -> list[Any]:
        return _views(images, indices[part], view, repeat(None) if arguments is None else arguments[part], elsewhere)

    with contextlib.closing(made_ahead(views, len(indices), pool, nbytes)) as results:
        for result in results:
            if isinstance(result, DataError) and not isinstance(result, keep):
                raise result
            yield result


def made_ahead(make: Callable[[slice], list[Any]], count: int, pool: ImagePool, nbytes: int) -> Generator[Any]:
    """What `make` returns for the parts of `count` images, in their order. Threads make it some way ahead.

    Args:
        nbytes: of what is made of one image, if known: of large images fewer are made ahead, of small ones more.
    """
    most = min(CHUNK_BYTES // nbytes, max(AHEAD, AHEAD_BYTES // nbytes)) if nbytes else AHEAD
    waiting: deque[Future[list[Any]]] = deque()
    begun = used = 0

    def begin_parts() -> None:
        nonlocal begun
        ahead = max(1, min(most, max(AHEAD, used)))  # of a set that is not read to its end, not much is made in vain
        size = max(1, min(ahead, count) // (2 * pool.workers))
        while begun < count and (begun - used + size <= ahead or not waiting):
            waiting.append(pool.submit(make, slice(begun, begun + size)))
            begun += size

    begin_parts()
    try:
        while waiting:
            results = waiting.popleft().result()
            yield from results
            used += len(results)
            begin_parts()
    finally:  # else the threads would first make all that is queued
        for future in waiting:
            future.cancel()


def _views(
    images: ImageSet,
    indices: Sequence[int] | Indices,
    view: View,
    arguments: Iterable[Any],
    elsewhere: bool = False,
) -> list[Any]:
    """The view of each image, or its error."""
    stored = [_read(images, int(index)) for index in indices]
    pixels = any(isinstance(image, Stored) and isinstance(image.content, np.ndarray) for image in stored)
    make = view_all_elsewhere if elsewhere and not pixels else view_all
    return make(view, list(zip(stored, arguments, strict=False)))


def _as_array(image: Decoded, _: None) -> Array:
    return image if isinstance(image, np.ndarray) else np.array(image)


def _read(images: ImageSet, index: int) -> Stored | DataError:
    """An image as its source has it."""
    key = images.keys[index]
    where = images.source.describe(key)
    if isinstance(images.source, Draws):
        return Stored(partial(images.source.read, key), True, where)
    try:
        content = images.source.read(key)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return CorruptImageError(f"{where}: {NOT_READABLE}: {error}")
    except Exception as error:  # no permission, no memory, no such file: the image itself may be fine
        return DataError(f"{where}: {NOT_READABLE}: {error}")
    # Plain bytes, since a worker should not need to know what these are.
    upright = not isinstance(content, NotTurned)
    return Stored(content if upright else bytes(content), upright, where)
