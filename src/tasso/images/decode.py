"""The one function that turns stored pictures into pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from tasso.errors import DataError
from tasso.tasks.task import Array, ImageSet


def decode(images: ImageSet, index: int) -> Array:
    """Pixels of one picture: height × width × 3, uint8."""
    key = images.keys[index]
    stored = images.source.read(key)
    if isinstance(stored, np.ndarray):
        return stored
    try:
        with Image.open(io.BytesIO(stored)) as picture:
            return np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise DataError(f"{images.source.describe(key)}: not a readable picture: {error}") from None
