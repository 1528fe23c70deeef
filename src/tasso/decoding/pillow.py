"""Encoded images become pixels. What Pillow gives is what every part of tasso sees."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from tasso.errors import DataError

Array = npt.NDArray[Any]


class CorruptImageError(DataError):
    """The file is no image, or a damaged one. Reading it again would not help."""


def decode_bytes(stored: bytes, upright: bool, where: str) -> Array:
    """Pixels of an encoded image, `(H, W, 3)` uint8; turned upright, or as stored. An error begins with `where`."""
    try:
        return pixels_of(io.BytesIO(stored), upright)
    except MemoryError:
        raise DataError(f"{where}: not enough memory for this image") from None
    except Exception as error:  # Pillow raises errors of many kinds for a damaged file
        raise CorruptImageError(f"{where}: not a readable image: {reason(error)}") from None


def reason(error: Exception) -> str:
    """What is wrong with an image. Pillow's own message for an unknown format is about Python objects."""
    if isinstance(error, UnidentifiedImageError):
        return "unknown image format"
    return str(error) or type(error).__name__


def pixels_of(file: io.BytesIO | str, upright: bool = True) -> Array:
    """Pixels of an encoded image, `(H, W, 3)` uint8; turned upright, or as stored."""
    with Image.open(file) if isinstance(file, str) else _open(file) as image:
        return to_rgb(image, upright)


def _open(file: io.BytesIO) -> Image.Image:
    """Pillow tries its plugins in turn, and WebP's is one of the last: with thousands of small images that counts."""
    start = file.read(12)
    file.seek(0)
    return Image.open(file, formats=("WEBP",) if start[:4] == b"RIFF" and start[8:] == b"WEBP" else None)


# What turns an image upright, by its EXIF orientation.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation: cameras store images as the sensor saw them and note how they were held.

    Pillow's own `exif_transpose` rewrites all EXIF data, and fails where a tag is malformed.
    """
    try:
        turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data are no reason to refuse an image
        return image
    return image if turn is None else image.transpose(turn)


def to_rgb(image: Image.Image, upright: bool = True) -> Array:
    """A Pillow image as RGB, `(H, W, 3)` uint8; turned upright, or as stored.

    Pillow itself would clip 16-bit values at 255.
    """
    image.load()  # a damaged image is found here, not where damaged EXIF data are ignored
    if upright:
        image = _upright(image)
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image).astype(np.uint16) // 257).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode} has no known range of values; save it with 8 or 16 bits per channel")
    if isinstance(image.info.get("transparency"), bytes):  # else Pillow warns, image by image
        image = image.convert("RGBA")
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))
