"""Is an image file whole, as far as its first and last bytes tell? A look at these costs a hundredth of decoding it."""

from __future__ import annotations

import os
from pathlib import Path

from tasso.decoding.pillow import NOT_READABLE, decode_bytes, open_image
from tasso.errors import DataError
from tasso.files import open_regular, read_bytes

JPEG, JPEG_END, SCAN = b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda"
# How a file of this format begins and ends.
ENDS = {JPEG: JPEG_END, b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82", b"GIF8": b";"}


def problem_of(file: Path, *, thorough: bool) -> DataError | None:
    """Why an image file cannot be read; if not `thorough`, only if it is empty, cut short or no image.

    Doubtful files are decoded, so an image that can be read is never refused.
    """
    try:
        if not thorough and _seems_whole(file):
            return None
        decode_bytes(read_bytes(file), True, str(file))
    except DataError as error:
        return error
    except OSError as error:
        return DataError(f"{file}: {NOT_READABLE}: {error.strerror}")
    return None


def _seems_whole(file: Path) -> bool:
    with open_regular(file) as opened:
        start = opened.read(16)
        if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
            return opened.seek(0, os.SEEK_END) >= int.from_bytes(start[4:8], "little") + 8
        end = next((end for begin, end in ENDS.items() if start.startswith(begin)), None)
        if end is None:
            return _has_header(file)
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - len(end)))
        if opened.read() == end:
            return True
        if not start.startswith(JPEG):
            return False
        opened.seek(0)
        return _jpeg_ends(opened.read())


def _has_header(file: Path) -> bool:
    """Of formats without a mark at their end, the header is all that is looked at."""
    try:
        with open_regular(file) as opened, open_image(opened) as image:
            return image.mode not in ("I", "F")  # not readable here
    except Exception:  # Pillow raises errors of many kinds
        return False


def _jpeg_ends(content: bytes) -> bool:
    """Is there an end after the image's own data? Phones add more behind it, such as a film of several MB; a small
    image within the header has an end of its own."""
    place = 2
    while content[place : place + 1] == b"\xff" and content[place : place + 2] != SCAN:
        place += 2 + int.from_bytes(content[place + 2 : place + 4])
    return content.find(JPEG_END, place) >= 0
