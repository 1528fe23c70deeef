"""The one function that turns stored pictures into pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tasso.errors import DataError
from tasso.tasks.task import Array, ImageSet


def decode(images: ImageSet, index: int) -> Array:
    """Pixels of one picture: height × width × 3, uint8. An error names the picture."""
    key = images.keys[index]
    try:
        stored = images.source.read(key)
        return stored if isinstance(stored, np.ndarray) else pixels_of(io.BytesIO(stored))
    except Exception as error:  # Pillow and zipfile raise errors of many kinds for a damaged file
        raise DataError(f"{images.source.describe(key)}: not a readable picture: {error}") from None


def pixels_of(file: io.BytesIO | str) -> Array:
    """Pixels of an encoded picture."""
    with Image.open(file) as picture:
        return to_rgb(picture)


def to_rgb(picture: Image.Image) -> Array:
    """A Pillow image as RGB bytes. Pillow itself would cut 16-bit values off at 255."""
    if picture.mode.startswith("I;16"):
        grey = (np.asarray(picture).astype(np.uint16) // 257).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    if picture.mode in ("I", "F"):
        raise ValueError(f"pixels are {picture.mode} numbers of unknown range; save it with 8 or 16 bits a channel")
    if isinstance(picture.info.get("transparency"), bytes):  # else Pillow warns, picture by picture
        picture = picture.convert("RGBA")
    return np.array(picture.convert("RGB"))
