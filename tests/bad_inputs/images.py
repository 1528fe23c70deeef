"""Files that are no images, or that should not be opened."""

from __future__ import annotations

import io
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bad_inputs.case import Bad
from bad_inputs.world import OWN, image, noise

CLASSIFY = ("classify", "run", "--device", "cpu", "--unreadable", "error")


def encoded(kind: str, size: int = 64) -> bytes:
    stored = io.BytesIO()
    Image.fromarray(noise(size, size, 3)).save(stored, kind)
    return stored.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_size(width: int, height: int) -> bytes:
    """A whole PNG of one colour that declares any size; its data are a few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def floats() -> bytes:
    stored = io.BytesIO()
    Image.fromarray(np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)).save(stored, "TIFF")
    return stored.getvalue()


def flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 0xFF
    return bytes(changed)


# Name, what it is, file name, content.
FILES: list[tuple[str, str, str, bytes | Callable[[Path], object]]] = [
    ("empty", "no bytes at all", "x.jpg", b""),
    ("text", "text called .jpg", "x.jpg", b"this is not an image\n"),
    ("html", "a page called .png", "x.png", b"<!doctype html><html><body>404</body></html>"),
    ("svg", "an SVG called .png", "x.png", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
    ("pdf", "a PDF called .jpg", "x.jpg", b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n%%EOF\n"),
    ("zip", "a zip called .png", "x.png", b"PK\x05\x06" + bytes(18)),
    ("nul", "a kibibyte of zeros", "x.png", bytes(1024)),
    ("jpeg-truncated", "half a JPEG", "x.jpg", encoded("JPEG")[: len(encoded("JPEG")) // 2]),
    ("jpeg-head", "the first 20 bytes of a JPEG", "x.jpg", encoded("JPEG")[:20]),
    ("png-truncated", "half a PNG", "x.png", encoded("PNG")[: len(encoded("PNG")) // 2]),
    ("png-signature", "the signature of a PNG and no more", "x.png", encoded("PNG")[:8]),
    ("png-checksum", "a PNG with a changed byte", "x.png", flipped(encoded("PNG"), 3000)),
    ("png-header", "a PNG with a changed header", "x.png", flipped(encoded("PNG"), 18)),
    ("png-no-size", "a PNG of no width", "x.png", png_of_size(0, 10)),
    ("gif-truncated", "the first 12 bytes of a GIF", "x.gif", encoded("GIF")[:12]),
    ("webp-truncated", "half a WebP", "x.webp", encoded("WEBP")[: len(encoded("WEBP")) // 2]),
    ("bmp-truncated", "half a BMP", "x.bmp", encoded("BMP")[: len(encoded("BMP")) // 2]),
    ("tiff-truncated", "the first 100 bytes of a TIFF", "x.tif", encoded("TIFF")[:100]),
    ("ppm-truncated", "half a PPM", "x.ppm", encoded("PPM")[: len(encoded("PPM")) // 2]),
    ("bomb", "a PNG of 60 bytes that declares 50 000 × 50 000 pixels", "x.png", png_of_size(50_000, 50_000)),
    ("bomb-wide", "a PNG that declares 2 147 483 647 × 1 pixels", "x.png", png_of_size(2**31 - 1, 1)),
    ("bomb-ppm", "a PPM that declares 99 999 × 99 999 pixels", "x.ppm", b"P6 99999 99999 255\n"),
    ("floats", "a TIFF of floating-point numbers", "x.tif", floats()),
    ("folder", "a folder called x.png", "x.png", lambda path: path.mkdir()),
    ("link-loop", "a link to itself", "x.png", lambda path: path.symlink_to(path.name)),
    ("link-nowhere", "a link to nothing", "x.png", lambda path: path.symlink_to("nothing.png")),
    ("newline-name", "a damaged image with a line break in its name", "a\nb.png", b"no"),
    ("emoji-name", "a damaged image with an emoji in its name", "🐦.png", b"no"),
]  # fmt: skip


def put(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda place: (
        (place / "in" / name).write_bytes(content) if isinstance(content, bytes) else content(place / "in" / name)
    )


def classified(name: str, what: str, file: str, content: bytes | Callable[[Path], object]) -> Bad:
    def make(place: Path) -> None:
        (place / "in").mkdir()
        put(file, content)(place)

    says = r"in/" + file.replace(".", r"\.")
    return Bad(f"image/{name}", what, (*CLASSIFY, f"in/{file}"), says, make, ("model", "run"))


def learned(name: str, what: str, content: bytes, file: str = "2.png") -> Bad:
    """The same in an own task: found before anything is learned."""
    return Bad(
        f"image/learned-{name}", f"{what}, in an own task", (*OWN, "--tasks", "birds=birds"),
        rf"images cannot be read: .*birds/owl/{file}: .*--corrupt skip", lambda p: (p / "birds/owl" / file).write_bytes(content),
        ("model", "birds"),
    )  # fmt: skip


def zipped(place: Path) -> None:
    (place / "birds/owl/1.png").write_bytes(encoded("PNG")[:5000])
    shutil.make_archive(str(place / "birds"), "zip", place / "birds")


CASES = [
    *(classified(*case) for case in FILES),
    Bad("image/forbidden", "an image that may not be read", (*CLASSIFY, "x.png"), r"x\.png: .*[Pp]ermission denied",
        lambda p: [image().save(p / "x.png"), (p / "x.png").chmod(0)], ("model", "run"), only_users=True),
    Bad("image/nowhere", "an image that is not there", (*CLASSIFY, "no.png"), r"no\.png: no such file or folder", needs=("model", "run")),
    Bad("image/pattern", "a pattern that fits nothing", (*CLASSIFY, "*.jpg"), r"\*\.jpg: no such file or folder, and no file fits", needs=("model", "run")),
    Bad("image/empty-folder", "a folder without images", (*CLASSIFY, "run"), r"run: no images in there", needs=("model", "run")),
    learned("empty", "no bytes at all", b""),
    learned("truncated", "half a PNG", encoded("PNG")[:5000]),
    learned("text", "text called .png", b"no"),
    learned("bomb", "a PNG that declares 50 000 × 50 000 pixels", png_of_size(50_000, 50_000)),
    Bad("image/learned-zip", "half a PNG in a zip, which is found when it is packed", (*OWN, "--tasks", "birds=birds.zip", "--pack-dir", "packs"),
        r"birds (train|test): 1 of \d+ images cannot be read: .*birds\.zip:owl/1\.png: .*--corrupt skip", zipped,
        ("model", "birds"), leaves=("packs",)),
]  # fmt: skip
