"""The one function that turns stored pictures into pixels."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from tasso.data.task import Array, ImageSet
from tasso.errors import DataError


class CorruptPictureError(DataError):
    """What is stored is no picture, or a damaged one. To read it once more would not help."""


def decode(images: ImageSet, index: int) -> Array:
    """Pixels of one picture: height × width × 3, uint8. An error names the picture."""
    key = images.keys[index]
    where = images.source.describe(key)
    try:
        stored = images.source.read(key)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CorruptPictureError(f"{where}: not a readable picture: {error}") from None
    except Exception as error:  # no rights, no memory, no such file: the picture itself may be fine
        raise DataError(f"{where}: not a readable picture: {error}") from None
    try:
        return stored if isinstance(stored, np.ndarray) else pixels_of(io.BytesIO(stored))
    except MemoryError:
        raise DataError(f"{where}: not enough memory for this picture") from None
    except Exception as error:  # Pillow raises errors of many kinds for a damaged file
        raise CorruptPictureError(f"{where}: not a readable picture: {why(error)}") from None


def why(error: Exception) -> str:
    """What is wrong with a picture. Pillow's own words for an unknown format are about Python objects."""
    if isinstance(error, UnidentifiedImageError):
        return "no format of pictures that is known here"
    return str(error) or type(error).__name__


def pixels_of(file: io.BytesIO | str) -> Array:
    """Pixels of an encoded picture."""
    with Image.open(file) if isinstance(file, str) else _open(file) as picture:
        return to_rgb(picture)


def _open(file: io.BytesIO) -> Image.Image:
    """Pillow asks its plugins in turn, and WebP's is one of the last: with thousands of small pictures that counts."""
    start = file.read(12)
    file.seek(0)
    return Image.open(file, formats=("WEBP",) if start[:4] == b"RIFF" and start[8:] == b"WEBP" else None)


# What brings a picture upright, by the EXIF note of how it lies.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _upright(picture: Image.Image) -> Image.Image:
    """Turned as its EXIF data say. Cameras store what they saw lying on its side, and note how it was held.

    Pillow's own `exif_transpose` writes all notes anew, and fails where one of them has a strange form.
    """
    picture.load()  # a damaged picture is found here, not where damaged notes are forgiven
    try:
        turn = TURNS.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged notes are no reason to refuse a picture
        return picture
    return picture if turn is None else picture.transpose(turn)


def to_rgb(picture: Image.Image) -> Array:
    """A Pillow image as RGB bytes, upright. Pillow itself would cut 16-bit values off at 255."""
    picture = _upright(picture)
    if picture.mode.startswith("I;16"):
        grey = (np.asarray(picture).astype(np.uint16) // 257).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    if picture.mode in ("I", "F"):
        raise ValueError(f"pixels are {picture.mode} numbers of unknown range; save it with 8 or 16 bits a channel")
    if isinstance(picture.info.get("transparency"), bytes):  # else Pillow warns, picture by picture
        picture = picture.convert("RGBA")
    return np.array(picture.convert("RGB"))
