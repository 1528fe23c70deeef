"""Images that a user names: files, folders and patterns, or images that are in memory already."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from tasso.data.readers.labelled import SUFFIXES
from tasso.data.task import Array
from tasso.decoding.pillow import open_image, reason, to_rgb
from tasso.errors import DataError
from tasso.files import not_too_deep, open_regular

ImageLike = str | Path | Image.Image | Array

DRAFT_SIDE = 2048
MOST_STORED = 100_000_000  # pixels of an uploaded JPEG; what is between file and pixels takes up to 8 bytes for each
MAX_SIDE = 20_000


def find_images(args: Iterable[str | Path]) -> list[Path]:
    """The image files that the arguments name, each once: files, folders (recursively) or patterns (`*`, `?`, `**`).

    An argument that exists is taken literally, even if it looks like a pattern.
    """
    found: dict[Path, None] = {}
    for arg in map(str, args):
        paths = [arg] if Path(arg).exists() else _glob(arg)
        if not paths:
            raise DataError(f"{arg}: no such file or folder, and no file fits it as a pattern")
        files = [file for path in paths for file in _files_in(Path(path))]
        if not files:
            raise DataError(f"{arg}: no images in there ({', '.join(SUFFIXES)})")
        found.update(dict.fromkeys(files))
    return list(found)


def _glob(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no pattern from the root


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = []
    with not_too_deep(path):
        for folder, subfolders, names in os.walk(path):  # links to folders are not followed: no endless loops
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            files += [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
    return [file for file in files if file.suffix.lower() in SUFFIXES]


def read_image(image: ImageLike) -> Array:
    """Pixels of one image, `(H, W, 3)` uint8. An error names the image."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
            raise DataError(
                f"classify: an array must be (height, width, 3) of uint8, not {image.shape} of {image.dtype}"
            )
        return np.array(image)  # torch needs a writable array
    if isinstance(image, Image.Image):
        return to_rgb(image)
    try:
        with open_regular(Path(image)) as file, open_image(file) as opened:
            return to_rgb(opened)
    except Exception as error:  # as in decode.py
        raise DataError(f"{image}: not a readable image: {reason(error)}") from None


def read_upload(content: bytes, max_pixels: int) -> Array:
    """Pixels of an uploaded image, `(H, W, 3)` uint8; one that is too large is refused before it is decoded.

    A JPEG is made smaller while it is decoded if its short side remains `DRAFT_SIDE` or longer; then it may have more
    pixels.
    """
    try:
        with open_image(io.BytesIO(content)) as image:
            width, height = image.size
            image.draft(None, (DRAFT_SIDE, DRAFT_SIDE))
            if image.width * image.height > max_pixels or width * height > MOST_STORED:
                raise DataError(f"{width} × {height} pixels are more than the {max_pixels:,} that are allowed")
            if max(image.size) > MAX_SIDE:  # the matrix of its filter would be huge
                raise DataError(f"{width} × {height} pixels: a side is longer than the {MAX_SIDE:,} that are allowed")
            return to_rgb(image)
    except DataError:
        raise
    except Image.DecompressionBombError:  # Pillow's own limit
        raise DataError(f"this image has far more than the {max_pixels:,} pixels that are allowed") from None
    except Exception:  # Pillow's message is about bytes and objects, no help to the sender
        raise DataError("this is not an image, or a damaged one") from None
