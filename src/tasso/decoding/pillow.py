"""Encoded images become pixels. What Pillow gives is what every part of tasso sees."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from tasso.errors import DataError

Array = npt.NDArray[Any]
# The formats that are read, whatever a file is called. Pillow knows more, and hands some to other programs (EPS). Its
# reader of JPEG reads several in one file (MPO), too.
FORMATS = tuple(
    plugin.format
    for plugin in (
        JpegImagePlugin.JpegImageFile,
        PngImagePlugin.PngImageFile,
        WebPImagePlugin.WebPImageFile,
        GifImagePlugin.GifImageFile,
        BmpImagePlugin.BmpImageFile,
        PpmImagePlugin.PpmImageFile,
        TiffImagePlugin.TiffImageFile,
        AvifImagePlugin.AvifImageFile,
    )
)
NOT_READABLE = "not a readable image"


class CorruptImageError(DataError):
    """The file is no image, or a damaged one. Reading it again would not help."""


def decode_bytes(stored: bytes, upright: bool, where: str) -> Image.Image:
    """An encoded image as RGB; turned upright, or as stored. An error begins with `where`."""
    try:
        with open_image(io.BytesIO(stored)) as image:
            return rgb_image(image, upright)
    except MemoryError:
        raise DataError(f"{where}: not enough memory for this image") from None
    except Exception as error:  # Pillow raises errors of many kinds for a damaged file
        why = reason(error) if stored else "the file is empty"
        raise CorruptImageError(f"{where}: {NOT_READABLE}: {why}") from None


def reason(error: Exception) -> str:
    """What is wrong with an image. Pillow's own message for an unknown format is about Python objects."""
    if isinstance(error, UnidentifiedImageError):
        return "unknown image format"
    return str(error) or type(error).__name__


def open_image(file: BinaryIO) -> Image.Image:
    """An image of one of `FORMATS`. All that is opened is opened here."""
    return Image.open(file, formats=FORMATS)


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


def to_rgb(image: Image.Image) -> Array:
    """Pixels of a Pillow image, `(H, W, 3)` uint8, turned upright."""
    return np.array(rgb_image(image))


def rgb_image(image: Image.Image, upright: bool = True) -> Image.Image:
    """A Pillow image as RGB; turned upright, or as stored. Pillow itself would clip 16-bit values at 255."""
    image.load()  # a damaged image is found here, not where damaged EXIF data are ignored
    if upright:
        image = _upright(image)
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image).astype(np.uint16) // 257).astype(np.uint8)
        return Image.fromarray(np.repeat(grey[..., None], 3, axis=-1))
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode} has no known range of values; save it with 8 or 16 bits per channel")
    if isinstance(image.info.get("transparency"), bytes):  # else Pillow warns, image by image
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")
