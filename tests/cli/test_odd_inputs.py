"""Inputs that are odd but fine: they work, and images come out as people see them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from bad_inputs import world
from bad_inputs.case import carried_out, contents
from conftest import draw
from tasso.cli import parse_run_config
from tasso.data.images.files import read_image
from tasso.data.task import Array

LONG = "x" * 251 + ".png"  # 255 bytes is what file systems take


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world.build(tmp_path_factory.mktemp("odd") / "world")


def gradient(height: int = 12, width: int = 20) -> Array:
    """Every corner of another brightness, so that no turn goes unseen."""
    rows, columns = np.mgrid[0:height, 0:width]
    return np.repeat((rows * 10 + columns * 5)[..., None], 3, axis=-1).astype(np.uint8)


def saved(image: Image.Image, name: str, **options: Any) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        image.save(folder / name, **options)
        return folder / name

    return save


def turned(orientation: int) -> Callable[[Path], Path]:
    """The gradient as a camera stores it that was held otherwise, with a note how."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stored = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}[orientation]
    return saved(Image.fromarray(gradient()).transpose(stored), f"turned-{orientation}.png", exif=exif)


def odd_notes(folder: Path) -> Path:
    """Orientation 6, and a resolution that is text: Pillow cannot write such notes anew."""
    note = b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\x01\x1a\0\x02\0\0\0\x03abc\0\0\0\0\0"
    file = folder / "odd-notes.jpg"
    Image.fromarray(gradient()).transpose(Image.Transpose.ROTATE_90).save(file, quality=100, exif=note)
    return file


def damaged_notes(folder: Path) -> Path:
    file = folder / "notes.jpg"
    Image.fromarray(gradient()).save(file, quality=100, exif=b"Exif\0\0MM\0*" + b"\xff" * 40)
    return file


def palette() -> Image.Image:
    image = Image.fromarray(gradient()).convert("P")
    image.info["transparency"] = bytes(range(256))
    return image


def frames(name: str) -> Callable[[Path], Path]:
    first, *rest = (Image.fromarray(np.full((8, 8, 3), shade, np.uint8)) for shade in (40, 120, 200))
    return saved(first, name, save_all=True, append_images=rest, duration=50, lossless=True)


def sixteen() -> Image.Image:
    return Image.fromarray(gradient()[..., 0].astype(np.uint16) * 257)


GREY = Image.fromarray(gradient()).convert("L")
# What it is, how it is made, what must be seen; None: only that something is.
IMAGES: list[tuple[str, Callable[[Path], Path], Array | None]] = [
    ("CMYK JPEG", saved(Image.fromarray(gradient()).convert("CMYK"), "cmyk.jpg"), None),
    ("CMYK TIFF", saved(Image.fromarray(gradient()).convert("CMYK"), "cmyk.tif"), gradient()),
    ("16-bit grey PNG", saved(sixteen(), "deep.png"), gradient()),
    ("16-bit grey TIFF", saved(sixteen(), "deep.tif"), gradient()),
    ("8-bit grey", saved(GREY, "grey.png"), gradient()),
    ("grey with alpha", saved(GREY.convert("LA"), "alpha.png"), gradient()),
    ("RGBA", saved(Image.fromarray(gradient()).convert("RGBA"), "rgba.png"), gradient()),
    ("palette with transparency", saved(palette(), "palette.png"), None),
    ("two colours", saved(GREY.convert("1"), "two.png"), None),
    ("progressive JPEG", saved(Image.fromarray(gradient()), "progressive.jpg", progressive=True), None),
    ("animated GIF", frames("moving.gif"), np.full((8, 8, 3), 40, np.uint8)),
    ("animated WebP", frames("moving.webp"), np.full((8, 8, 3), 40, np.uint8)),
    ("animated PNG", frames("moving.png"), np.full((8, 8, 3), 40, np.uint8)),
    ("EXIF: upside down", turned(3), gradient()),
    ("EXIF: on its right side", turned(6), gradient()),
    ("EXIF: on its left side", turned(8), gradient()),
    ("EXIF that is damaged", damaged_notes, None),
    ("EXIF with a number as text, on its right side", odd_notes, None),
    ("one pixel", saved(Image.new("RGB", (1, 1), (7, 8, 9)), "one.png"), np.array([[[7, 8, 9]]], np.uint8)),
    ("1 × 3000 pixels", saved(Image.new("RGB", (1, 3000)), "tall.png"), np.zeros((3000, 1, 3), np.uint8)),
    ("a PNG called .jpg", saved(Image.fromarray(gradient()), "wrong.jpg", format="PNG"), gradient()),
    ("a line break in the name", saved(Image.fromarray(gradient()), "a\nb.png"), gradient()),
    ("an emoji in the name", saved(Image.fromarray(gradient()), "🐦 bird.png"), gradient()),
    ("brackets in the name", saved(Image.fromarray(gradient()), "a[1]*?.png"), gradient()),
    ("a name of 255 bytes", saved(Image.fromarray(gradient()), LONG), gradient()),
]


@pytest.mark.parametrize(("make", "expected"), [p[1:] for p in IMAGES], ids=[p[0] for p in IMAGES])
def test_image_is_read_as_people_see_it(make: Callable[[Path], Path], expected: Array | None, tmp_path: Path) -> None:
    pixels = read_image(make(tmp_path))
    assert pixels.dtype == np.uint8
    assert pixels.shape[-1] == 3
    assert np.ptp(pixels) > 0 or expected is not None
    if expected is not None:
        np.testing.assert_array_equal(pixels, expected)


def test_all_of_them_are_classified(well: Path, tmp_path: Path) -> None:
    for part in ("model", "run"):
        shutil.copytree(well / part, tmp_path / part)
    (tmp_path / "in").mkdir()
    files = [make(tmp_path / "in").name for _, make, _ in IMAGES]
    (tmp_path / "linked").symlink_to("in")
    outcome = carried_out(("classify", "run", "linked/", "--json", "--device", "cpu"), tmp_path)
    assert outcome.code == 0, outcome.said
    answers = [json.loads(line) for line in outcome.printed.splitlines()]
    assert sorted(Path(answer["image"]).name for answer in answers) == sorted(files)
    assert all(answer["predictions"] for answer in answers)
    assert not outcome.changed


def test_own_task_with_odd_names(well: Path, tmp_path: Path) -> None:
    """Classes with emoji, line breaks and spaces; one is a link, and one has a link back to the top."""
    shutil.copytree(well / "model", tmp_path / "model")
    for label, name in enumerate(("blue jay 🐦", "snowy\nowl", " wren ")):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for number in range(3):
            draw(label, number).save(tmp_path / "birds" / name / f"{number}\n{'é' * 20}.PNG")
    (tmp_path / "elsewhere").mkdir()
    for number in range(3):
        draw(3, number).save(tmp_path / "elsewhere" / f"{number}.png")
    (tmp_path / "birds" / "robin").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "birds" / " wren " / "top").symlink_to(tmp_path / "birds")
    outcome = carried_out((*world.OWN, "--tasks", "birds=birds"), tmp_path)
    assert outcome.code == 0, outcome.said
    names = json.loads((tmp_path / "out" / "results.json").read_text())["class_names"]["birds"]
    assert names == ["wren", "blue jay 🐦", "robin", "snowy owl"]


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_byte_order_marks_and_windows_lines(ending: str, mark: str, well: Path, tmp_path: Path) -> None:
    shutil.copytree(well / "birds", tmp_path / "birds")
    rows = [f"birds/{name}/{number}.png,{name}" for name in ("jay", "owl") for number in range(3)]
    (tmp_path / "list.csv").write_bytes((mark + ending.join(["path,label", *rows, ""])).encode())
    (tmp_path / "names.txt").write_bytes((mark + ending.join(["Jay", "Owl", ""])).encode())
    (tmp_path / "tasks.yaml").write_bytes(
        (mark + ending.join(["birds:", "  from: list.csv", "  names: names.txt", ""])).encode()
    )
    outcome = carried_out(("data", "pack", "--tasks", "tasks.yaml", "--pack-dir", "packs"), tmp_path)
    assert outcome.code == 0, outcome.said
    (tmp_path / "run.yaml").write_bytes((mark + ending.join(["steps: 3", "label: ünïcode 🐦", ""])).encode())
    config = parse_run_config("tasso run", ["--config", str(tmp_path / "run.yaml")])
    assert (config.steps, config.label) == (3, "ünïcode 🐦")


def test_names_may_have_spaces_and_more(well: Path, tmp_path: Path) -> None:
    """A run folder with spaces, a line break and an emoji works, and so does a link to one."""
    shutil.copytree(well, tmp_path / "w", symlinks=True)
    place = tmp_path / "w"
    shutil.copytree(place / "run", place / "my run\n🐦")
    (place / "link").symlink_to("my run\n🐦")
    before = contents(place)
    for words in (("metrics", "my run\n🐦"), ("metrics", "link"), ("report", "link", "--format", "markdown")):
        outcome = carried_out(words, place)
        assert outcome.code == 0, outcome.said
    assert contents(place) == before


def test_yaml_with_anchors_and_merge_keys_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: &m {name: tasso, rank: 7}\nlr: 1e-3\n")
    assert parse_run_config("tasso run", ["--config", str(file)]).method == {"name": "tasso", "rank": 7}
    from tasso.files import parse_yaml

    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


def test_on_off_yes_and_no_are_words(tmp_path: Path) -> None:
    """As in YAML 1.2: they may be values of options or names of classes."""
    from tasso.files import parse_yaml

    file = tmp_path / "run.yaml"
    file.write_text("compile: on\ncuda_graphs: False\n")
    config = parse_run_config("tasso run", ["--config", str(file)])
    assert (config.compile, config.cuda_graphs) == ("on", False)
    assert parse_yaml("[yes, No, off, true, y]") == ["yes", "No", "off", True, "y"]


def test_a_stored_image_is_upright_too(tmp_path: Path) -> None:
    """The same decoder for training, for packs and for uploads."""
    from tasso.data.images.files import read_upload
    from tasso.decoding.pillow import decode_bytes

    content = turned(6)(tmp_path).read_bytes()
    np.testing.assert_array_equal(np.array(decode_bytes(content, True, "")), gradient())
    np.testing.assert_array_equal(read_upload(content, 10**6), gradient())
