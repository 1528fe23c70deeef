"""Images that a user points at: files, folders and patterns, or images that are in memory already."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from tasso.data.images.decode import pixels_of, to_rgb, why
from tasso.data.readers.found import SUFFIXES
from tasso.data.task import Array
from tasso.errors import DataError

ImageLike = str | Path | Image.Image | Array

# What an image that somebody sends may be. Pillow reads more, but hands some of it to other programs (EPS).
SENT = ("AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")


def find_images(words: Iterable[str | Path]) -> list[Path]:
    """The files that the words mean, each once: files, folders with all that is in them, or patterns (`*`, `?`, `**`).

    Whatever exists under its name is taken by that name, even if the name looks like a pattern.
    """
    found: dict[Path, None] = {}
    for word in map(str, words):
        places = [word] if Path(word).exists() else _fitting(word)
        if not places:
            raise DataError(f"{word}: no such file or folder, and no file fits it as a pattern")
        files = [file for place in places for file in _files_in(Path(place))]
        if not files:
            raise DataError(f"{word}: no images in there ({', '.join(SUFFIXES)})")
        found.update(dict.fromkeys(files))
    return list(found)


def _fitting(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no pattern from the root


def _files_in(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    files = []
    for folder, below, names in os.walk(place):  # links to folders are not followed, so there is no going in circles
        below[:] = sorted(name for name in below if not name.startswith("."))
        files += [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
    return [file for file in files if file.suffix.lower() in SUFFIXES]


def read_image(image: ImageLike) -> Array:
    """Pixels: height × width × 3, uint8. An error names the image."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            raise DataError(
                f"classify: an array must be height × width × 3 bytes (uint8), not {image.shape} of {image.dtype}"
            )
        return np.array(image)  # torch wants an array it may write to
    if isinstance(image, Image.Image):
        return to_rgb(image)
    try:
        return pixels_of(str(image))
    except Exception as error:  # as in images.decode
        raise DataError(f"{image}: not a readable image: {why(error)}") from None


def read_upload(content: bytes, most_pixels: int) -> Array:
    """Pixels of an image that somebody sent; one that would be huge when decoded is refused before it is."""
    Image.init()  # else not all formats are known yet
    try:
        with Image.open(io.BytesIO(content), formats=[name for name in SENT if name in Image.OPEN]) as image:
            width, height = image.size
            if width * height > most_pixels:
                raise DataError(f"{width} × {height} pixels are more than the {most_pixels:,} that are allowed")
            return to_rgb(image)
    except DataError:
        raise
    except Image.DecompressionBombError:  # Pillow's own limit
        raise DataError(f"this image has far more than the {most_pixels:,} pixels that are allowed") from None
    except Exception:  # what Pillow says is about bytes and objects, and no help to who sent them
        raise DataError("this is not an image, or a damaged one") from None
