"""Images decoded in other processes: the same bits as in this one, the same errors, and nothing left behind."""

from __future__ import annotations

import io
import logging
import operator
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageFile
from test_images import ArraySource, photo

from tasso.data.annotated import FolderSource
from tasso.data.drawn import ReferenceSource
from tasso.data.images import Preprocess
from tasso.data.images import decode as decode_module
from tasso.data.images.decode import ImagePool, decode, decode_all, made_ahead
from tasso.data.images.unreadable import CheckedImages, unreadable
from tasso.data.task import Array, AsStored, ImageSet, Source
from tasso.decoding import processes
from tasso.decoding.pillow import CorruptImageError, _upright
from tasso.decoding.views import centre_crop, crop_draws, planes, random_crop, shrunk
from tasso.decoding.worker import Stored
from tasso.errors import DataError

POOL = ImagePool(2, processes_from=1)
SIZES = ((1, 1), (3, 7), (33, 20), (64, 64), (90, 131))


@pytest.fixture(autouse=True)
def without_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_failures", [])


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def of_every_kind() -> Iterator[bytes]:
    """Modes, formats, sizes and orientations that files come with."""
    for seed, (height, width) in enumerate(SIZES):
        image = Image.fromarray(photo(height, width, seed))
        alpha = image.copy()
        alpha.putalpha(Image.fromarray(photo(height, width, seed + 1)[..., 0]))
        for quality, subsampling in ((30, 0), (90, 1), (100, 2)):
            yield encoded(image, "JPEG", quality=quality, subsampling=subsampling, progressive=quality == 90)
        for mode in ("L", "CMYK"):
            yield encoded(image.convert(mode), "JPEG")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
            yield encoded(alpha.convert(mode), "PNG")
        yield encoded(image.convert("P"), "PNG", transparency=bytes(range(256)))
        yield encoded(Image.fromarray(photo(height, width)[..., 0].astype(np.uint16) * 250), "PNG")
        for options in ({"lossless": True}, {"quality": 50}, {"save_all": True, "append_images": [image.rotate(90)]}):
            yield encoded(alpha, "WEBP", **options)
            yield encoded(image, "WEBP", **options)
        for kind in ("GIF", "BMP", "TIFF", "PPM"):
            yield encoded(image, kind)
    for orientation in range(10):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        yield encoded(Image.fromarray(photo(20, 31)), "JPEG", exif=exif)
    yield encoded(Image.fromarray(photo(20, 31)), "JPEG", exif=b"Exif\0\0damaged")


def set_of(images: list[Array | bytes], upright: bool = True) -> ImageSet:
    files: Source = ArraySource(images)
    keys = tuple(str(number) for number in range(len(images)))
    return ImageSet(files if upright else AsStored(files), keys, np.zeros(len(keys), dtype=np.int64))


@pytest.mark.parametrize("upright", [True, False])
def test_every_kind_of_image_has_the_same_bits(upright: bool) -> None:
    images = set_of(list(of_every_kind()), upright)
    count = len(images)
    expected = [decode(images, index) for index in range(count)]
    for content, image in zip(of_every_kind(), expected, strict=True):
        with Image.open(io.BytesIO(content)) as plain:
            if plain.mode != "I;16":
                turned = _upright(plain) if upright else plain
                np.testing.assert_array_equal(image, np.array(turned.convert("RGBA").convert("RGB")))
    preprocess, draws = Preprocess(32, (0, 0, 0), (1, 1, 1)), crop_draws(np.random.default_rng(3), count)
    for view, arguments in (
        (planes, None),
        (partial(random_crop, preprocess), draws),
        (partial(centre_crop, preprocess), None),
    ):
        found = list(decode_all(images, range(count), POOL, view, arguments))
        here = [view(image, None if arguments is None else draws[index]) for index, image in enumerate(expected)]
        for index in range(count):
            np.testing.assert_array_equal(found[index], here[index], str(index))
    for (sizes, pixels), image in zip(
        decode_all(images, range(count), POOL, partial(shrunk, 24)), expected, strict=True
    ):
        assert sizes == shrunk(24, image)[0]
        np.testing.assert_array_equal(pixels, shrunk(24, image)[1])
    assert processes._idle, "in other processes"
    assert not processes._failures


def test_images_drawn_by_code_have_the_same_bits() -> None:
    images = ImageSet(ReferenceSource(), ("3", "1", "8"), np.zeros(3, dtype=np.int64))
    for index, image in enumerate(decode_all(images, range(3), POOL, planes)):
        np.testing.assert_array_equal(image, planes(decode(images, index)))


def test_the_first_error_in_their_order_names_its_image_and_the_rest_is_not_lost() -> None:
    stored: list[Array | bytes] = [encoded(Image.fromarray(photo(9, 9, seed)), "PNG") for seed in range(30)]
    whole = list(stored)
    stored[11], stored[20] = stored[11][:60], b"no image"  # type: ignore[index]
    images = set_of(stored)
    with pytest.raises(CorruptImageError, match="image 11: not a readable image"):
        list(decode_all(images, range(30), POOL, planes))
    found = list(decode_all(images, range(30), POOL, planes, keep=CorruptImageError))
    assert [index for index, image in enumerate(found) if isinstance(image, DataError)] == [11, 20]
    assert str(found[20]) == "image 20: not a readable image: unknown image format"
    for index in set(range(30)) - {11, 20}:
        np.testing.assert_array_equal(found[index], planes(decode(set_of(whole), index)))


def test_what_only_this_process_can_read_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    images = set_of([encoded(Image.fromarray(photo(40, 40)), "JPEG")[:-100]])
    [image] = decode_all(images, [0], POOL, planes)
    np.testing.assert_array_equal(image, planes(decode(images, 0)))


def test_a_warning_about_an_image_is_given_here() -> None:
    def warned(view: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            view()
        return [str(warning.message) for warning in caught]

    # Its EXIF data end in the middle of an entry.
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0\x0f\x01\x02\0\xff\0\0\0\xff\xff\0\0"
    images = set_of([encoded(Image.fromarray(photo(9, 9)), "JPEG", exif=exif)])
    assert warned(lambda: decode(images, 0))
    assert warned(lambda: list(decode_all(images, [0], POOL, planes))) == warned(lambda: decode(images, 0))


def test_a_killed_process_loses_no_image(caplog: pytest.LogCaptureFixture) -> None:
    images = set_of([encoded(Image.fromarray(photo(9, 9, seed)), "PNG") for seed in range(20)])
    expected = list(decode_all(images, range(20), POOL, planes))
    killed = list(processes._idle)
    for process in killed:
        process.process.kill()
        process.process.wait()
    with caplog.at_level(logging.WARNING, "tasso"):
        assert all(map(np.array_equal, decode_all(images, range(20), POOL, planes), expected))
    assert "a process that decodes images has died" in caplog.text
    assert not set(killed) & set(processes._idle)


def test_without_other_processes_images_are_decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    images = set_of([encoded(Image.fromarray(photo(9, 9, seed)), "PNG") for seed in range(20)])
    monkeypatch.setattr(processes, "_idle", type(processes._idle)())
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    for _ in range(2):
        for index, image in enumerate(decode_all(images, range(20), POOL, planes)):
            np.testing.assert_array_equal(image, planes(decode(images, index)))
    assert processes.FAILURES <= len(processes._failures) <= processes.FAILURES + POOL.workers, "not tried for ever"


def test_processes_end_with_their_pool() -> None:
    images = set_of([encoded(Image.fromarray(photo(9, 9)), "PNG")])
    with ImagePool(2, processes_from=1) as pool:
        list(decode_all(images, [0], pool, planes))
        [*started] = processes._idle
    assert started
    assert not processes._idle
    assert all(process.process.poll() is not None for process in started)


def test_odd_entries_of_the_path_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", Path("scripts"), *sys.path])
    assert processes.DecodingProcess().view_all(max, []) == ([], [])


def test_a_process_that_talks_nonsense_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('gKey of an unknown kind')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(processes, "_idle", type(processes._idle)())
    images = set_of([encoded(Image.fromarray(photo(9, 9)), "PNG")])
    [image] = decode_all(images, [0], POOL, planes)
    np.testing.assert_array_equal(image, planes(decode(images, 0)))
    assert len(processes._failures) == 1


PARENT = """
import os, signal, sys
from tasso.decoding.processes import DecodingProcess
process = DecodingProcess()
assert process.view_all(max, []) == ([], [])
assert os.getpgid(process.process.pid) != os.getpgid(0), "Ctrl-C in a terminal is for the parent alone"
{end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "sys.exit(0)", "1 / 0"])
def test_nothing_is_left_behind(end: str) -> None:
    """However a process ends. Its standard error is closed when the last process that has it open has exited."""
    parent = subprocess.run([sys.executable, "-c", PARENT.format(end=end)], stderr=subprocess.PIPE, text=True)
    assert parent.returncode in (-signal.SIGKILL, 0, 1)
    assert ("ZeroDivisionError" in parent.stderr) == (end == "1 / 0")


def test_a_fork_leaves_the_processes_to_its_parent() -> None:
    images = set_of([encoded(Image.fromarray(photo(9, 9)), "PNG")])
    list(decode_all(images, [0], POOL, planes))
    [*before] = processes._idle
    child = os.fork()
    if child == 0:
        os._exit(len(processes._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert before[0].process.poll() is None


def test_a_process_starts_without_torch_and_without_the_rest_of_tasso() -> None:
    code = (
        "import sys, tasso.decoding.worker; print(sorted(name for name in sys.modules if 'torch' in name or "
        "name.startswith('tasso.') and not name.startswith(('tasso.decoding', 'tasso.errors', 'tasso.version'))))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_no_view_makes_a_process_import_torch(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(encoded(Image.fromarray(photo(9, 9)), "PNG"))
    images = ImageSet.of(FolderSource(tmp_path), [("photo.png", 0)])
    assert not unreadable(images, "photographs", POOL, CheckedImages(tmp_path / "checked"))
    for view in (planes, partial(shrunk, 24), partial(centre_crop, Preprocess(8, (0, 0, 0), (1, 1, 1)))):
        list(decode_all(images, [0], POOL, view))
    list(decode_all(ImageSet.of(ReferenceSource(), [("3", 0)]), [0], POOL, planes))
    has_torch = Stored(partial(eval, "'torch' in __import__('sys').modules"), True, "")
    assert processes._idle
    for process in processes._idle:
        assert process.view_all(operator.or_, [(has_torch, False)]) == ([False], [])


@pytest.mark.parametrize(("nbytes", "most"), [(0, 8), (10, 100), (1000, 8), (10**9, 1)])
def test_as_much_is_made_ahead_as_has_been_used(nbytes: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small images, whose number of bytes is known: a set that turns out to be of no use has cost little."""
    monkeypatch.setattr(decode_module, "AHEAD", 8)
    monkeypatch.setattr(decode_module, "AHEAD_BYTES", 1000)
    begun: list[int] = []
    largest = 0
    with ImagePool(2) as pool:

        def make(part: slice) -> list[int]:
            begun.append(part.stop)
            return list(range(*part.indices(500)))

        made = made_ahead(make, 500, pool, nbytes)
        for used, value in enumerate(made):
            assert value == used
            ahead = max(begun) - used
            assert ahead <= max(1, min(most, max(8, used))) + max(1, most // 4), "what it may be, and a part"
            largest = max(largest, ahead)
    assert max(begun) >= 500
    assert largest > most // 2
