"""Decoded images that runs on one machine share: one file per set, mapped into memory by all of them."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import math
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from tasso.data.images.decode import decode, decode_all, thread_pool
from tasso.data.task import Array, Draws, ImageSet, Stamped
from tasso.decoding.views import planes
from tasso.errors import BusyError
from tasso.files import locked

SHARED_BYTES = 2**31  # larger sets are not shared

_folder: Path | None = None  # where they are, in a process that shares images


@contextlib.contextmanager
def place_for_images(folder: Path) -> Iterator[Path]:
    """A place below `folder` where the runs of one sweep share decoded images. It is removed when they have ended."""
    name = f".images-{platform.node()}-"  # other machines may see this folder, too
    for left in folder.glob(f"{glob.escape(name)}*"):  # by a killed sweep, unless its lock is held
        with contextlib.suppress(BusyError, OSError), locked(left, _refuse):
            shutil.rmtree(left, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=name, dir=folder))
    try:
        with locked(place, _refuse):
            yield place / "sets"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _refuse() -> NoReturn:
    raise BusyError("another sweep shares its images here")


@contextlib.contextmanager
def sharing(folder: Path | None) -> Iterator[None]:
    """Meanwhile this process shares images with all others that name this folder; None: with no other."""
    global _folder
    before, _folder = _folder, folder
    try:
        yield
    finally:
        _folder = before


def shared_images(images: ImageSet) -> Array | None:
    """All images of a set, `(N, 3, H, W)` uint8: decoded by the first process that asks for them, on all cores.

    None if images are not shared, or these cannot be: it is not known whether they have changed, their sizes differ, or
    they would take more than half of the free disk.
    """
    if _folder is None or not isinstance(images.source, Draws | Stamped):
        return None
    shape = (len(images), *planes(decode(images, 0)).shape)
    try:
        file = _folder / f"{_digest(images, shape)}.u8"
        _folder.mkdir(parents=True, exist_ok=True)
        with locked(_folder, lambda: None):
            if not file.exists() and not _write(file, images, shape):
                return None
        return np.asarray(np.memmap(file, np.uint8, "r", shape=shape))
    except OSError:  # no permission, no room, or an image that is gone: whoever reads it says so
        return None


def _write(file: Path, images: ImageSet, shape: tuple[int, ...]) -> bool:
    """The caller has locked the folder: a temporary file is one that a killed process has left."""
    if math.prod(shape) > min(SHARED_BYTES, shutil.disk_usage(file.parent).free // 2):  # runs write there, too
        return False
    temporary = file.with_suffix(".tmp")
    try:
        with temporary.open("wb") as pixels, thread_pool(0) as pool:
            for image in decode_all(images, range(len(images)), pool, planes, nbytes=math.prod(shape[1:])):
                if image.shape != shape[1:]:
                    return False
                pixels.write(image.data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _digest(images: ImageSet, shape: tuple[int, ...]) -> str:
    digest = hashlib.sha256(repr(shape).encode())
    names = [images.source.describe(key) for key in images.keys]
    stamps = images.source.stamps(images.keys) if isinstance(images.source, Stamped) else []
    digest.update("\n".join([type(images.source).__name__, *names, *stamps]).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:24]
