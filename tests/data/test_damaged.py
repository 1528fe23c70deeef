"""Images that cannot be read: found before a run begins, all named at once; what the message proposes works."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tasso
from own_images import write_folder
from tasso.cli import main
from tasso.config import from_dict
from tasso.data import damaged, load_sequence
from tasso.data.annotated import FolderSource
from tasso.data.task import ImageSet
from tasso.decoding import whole
from tasso.errors import ConfigError, DataError, RunError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def own(tiny_model: str, tmp_path: Path) -> dict[str, Any]:
    """Options of a run on two folders that takes a second."""
    for domain in ("pets", "food", "land"):
        write_folder(tmp_path / domain, domain)
    return {
        "tasks": {"pets": str(tmp_path / "pets"), "food": str(tmp_path / "food")}, "reference": str(tmp_path / "land"),
        "model": tiny_model, "steps": 2, "batch_size": 4, "reference_batch_size": 4, "lr": 1e-3,
        "method": {"name": "tasso", "rank": 6}, "device": "cpu", "out": str(tmp_path / "run"),
    }  # fmt: skip


def images_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:-100])
    return file


def spoil(file: Path) -> Path:
    """Damage inside an image, whose beginning and end are as they were."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    return file


def with_suffix(folder: Path, kind: str, **how: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


# -- one file ----------------------------------------------------------------------------------------------------

KINDS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_image_is_not_decoded(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(with_suffix(tmp_path, kind))
    monkeypatch.setattr(whole, "decode_bytes", None)
    assert whole.problem_of(tmp_path / "x", thorough=False) is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP"])
@pytest.mark.parametrize("left", [0, 2, 12, 0.5, 0.9])
def test_an_image_that_is_cut_short_is_found(kind: str, left: float, tmp_path: Path) -> None:
    content = with_suffix(tmp_path, kind)
    (tmp_path / "x").write_bytes(content[: left if isinstance(left, int) else int(left * len(content))])
    error = whole.problem_of(tmp_path / "x", thorough=False)
    assert str(error).startswith(f"{tmp_path / 'x'}: not a readable image: ")
    assert ("the file is empty" in str(error)) == (left == 0)


def test_what_phones_add_behind_a_jpeg_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thumbnail = with_suffix(tmp_path, "JPEG")
    content = with_suffix(tmp_path, "JPEG", exif=b"Exif\0\0" + thumbnail)  # which has an end of its own
    file = tmp_path / "x.jpg"
    file.write_bytes(content[:-200])
    assert "truncated" in str(whole.problem_of(file, thorough=False))
    monkeypatch.setattr(whole, "decode_bytes", None)
    file.write_bytes(content + b"a film" * 1000)
    assert whole.problem_of(file, thorough=False) is None


def test_a_doubtful_image_that_can_be_read_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(with_suffix(tmp_path, "PNG") + b"more")
    assert whole.problem_of(file, thorough=False) is None


def test_of_many_images_only_beginning_and_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, "pets")
    files = images_of(tmp_path)
    images = ImageSet.of(FolderSource(tmp_path), [(str(file.relative_to(tmp_path)), 0) for file in files])
    spoil(files[3])
    with pytest.raises(DataError, match=re.escape(f"1 of 15 images cannot be read: {files[3]}: ")):
        damaged.check_whole([images])
    monkeypatch.setattr(damaged, "DECODED", 0)
    damaged.check_whole([images])
    cut(files[4])
    with pytest.raises(DataError, match=re.escape(f"1 of 15 images cannot be read: {files[4]}: ")):
        damaged.check_whole([images, images])


# -- runs --------------------------------------------------------------------------------------------------------


def test_all_images_that_cannot_be_read_are_named_before_a_run(own: dict[str, Any], tmp_path: Path) -> None:
    bad = [cut(images_of(tmp_path / name)[2]) for name in ("pets", "food", "land")]
    bad[1].write_bytes(b"")
    with pytest.raises(DataError, match=r"3 of \d+ images cannot be read: ") as error:
        tasso.learn(**own)
    for file in bad:
        assert f"{file}: " in str(error.value)
    assert "--corrupt skip" in str(error.value)
    assert "This run has begun" not in str(error.value)
    assert not Path(own["out"]).exists()
    command = re.search(r"tasso (data check --tasks .*) decodes", str(error.value))
    assert command
    with pytest.raises(SystemExit):
        main(command[1].split())
    for file in bad:
        file.unlink()
    assert tasso.learn(**own).results["finished"]


def test_of_many_bad_images_some_are_named(own: dict[str, Any], tmp_path: Path) -> None:
    for file in images_of(tmp_path / "pets"):
        cut(file)
    with pytest.raises(DataError, match=r"15 of 45 images cannot be read: .*; and 5 more\. Replace or remove"):
        load_in(own)


def load_in(own: dict[str, Any]) -> None:
    config = from_dict(own)
    with damaged.advice_on_unreadable(config):
        load_sequence(config)


@pytest.mark.parametrize("packed", [False, True])
def test_with_skip_they_are_as_if_they_were_not_there(
    own: dict[str, Any], tmp_path: Path, packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Images to train on and to test with, and reference images."""
    for name in ("pets", "food", "land"):
        for file in images_of(tmp_path / name)[:2]:
            cut(file)
    packs = {"pack_dir": str(tmp_path / "packs")} if packed else {}
    run = tasso.learn(**own, **packs, corrupt="skip")
    assert "pets: 2 of 15 images cannot be read: " in caplog.text
    keys = [str(file.relative_to(tmp_path / "pets")) for file in images_of(tmp_path / "pets")[:2]]
    assert run.results["left_out"]["pets"] == keys
    assert sum(map(len, run.results["left_out"].values())) == 6
    found = tasso.evaluate(run=own["out"])
    assert found["mtil"] == run.results["mtil"]["matrix"][-1]
    shutil.move(str(tmp_path / "food"), str(tmp_path / "moved"))
    moved = {**own, "tasks": {"pets": str(tmp_path / "pets"), "food": str(tmp_path / "moved")}}
    assert tasso.learn(**moved, **packs, corrupt="skip").results["mtil"] == run.results["mtil"]
    for name in ("pets", "moved", "land"):
        for file in images_of(tmp_path / name)[:2]:
            file.unlink()
    without = tasso.learn(**{**moved, **packs, "out": str(tmp_path / "without")})
    assert without.results["mtil"] == run.results["mtil"]


@pytest.mark.parametrize("name", ["pets", "land"])
def test_a_link_to_an_image_that_is_gone_is_as_a_damaged_image(
    name: str, own: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a task, or of the reference images."""
    link = images_of(tmp_path / name)[0]
    link.unlink()
    link.symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"image missing: .*\. Replace or remove them, or .* --corrupt skip"):
        tasso.learn(**own)
    run = tasso.learn(**own, corrupt="skip")
    assert f"1 of 15 images cannot be read: {link}: a link to a file that is not there" in caplog.text
    assert sum(map(len, run.results["left_out"].values())) == 1


def test_images_in_a_zip_are_left_out_too(own: dict[str, Any], tmp_path: Path) -> None:
    cut(images_of(tmp_path / "pets")[0])
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for file in images_of(tmp_path / "pets"):
            archive.write(file, file.relative_to(tmp_path / "pets"))
    own["tasks"]["pets"] = str(tmp_path / "pets.zip")
    with pytest.raises(DataError, match=r"pets\.zip:.*not a readable image: .*--corrupt skip"):
        tasso.learn(**own)
    again = {**own, "out": str(tmp_path / "again")}
    assert len(tasso.learn(**again, corrupt="skip").results["left_out"]["pets"]) == 1


def test_skip_without_packs_is_for_own_tasks() -> None:
    with pytest.raises(ConfigError, match="corrupt: needs --pack-dir"):
        from_dict({"corrupt": "skip"})


def test_a_run_that_has_begun_goes_on_with_images_of_the_same_names(
    own: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage inside one of many images is found when it is decoded."""
    monkeypatch.setattr(damaged, "DECODED", 0)
    own["head"] = "texts"  # a head would see the images of all tasks before the first is learned
    good = tasso.learn(**{**own, "out": str(tmp_path / "good")})
    bad = next(file for file in images_of(tmp_path / "food") if str(file.relative_to(tmp_path / "food")) in
               load_sequence(from_dict(own)).tasks[1].train.keys)  # fmt: skip
    content = bad.read_bytes()
    spoil(bad)
    with pytest.raises(DataError, match=r"not a readable image: .*This run has begun: .*--overwrite"):
        tasso.learn(**own)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["per_task"]
    with pytest.raises(RunError, match="--overwrite to start afresh"):
        tasso.learn(**own, corrupt="skip")
    bad.unlink()
    with pytest.raises(RunError, match="data of task 'food' have changed"):
        tasso.learn(**own)
    bad.write_bytes(content)
    assert tasso.learn(**own).results["mtil"] == good.results["mtil"]
    spoil(bad)
    assert tasso.learn(**own, corrupt="skip", overwrite=True).results["left_out"]["food"]
    bad.unlink()
    assert tasso.learn(**own, overwrite=True).results["finished"]


# -- tasso data check --------------------------------------------------------------------------------------------


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = 0
    try:
        main(["data", "check", *words])
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().out


def test_own_tasks_are_checked(own: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tasks", *(f"{name}={place}" for name, place in own["tasks"].items()), "--reference", own["reference"]]
    code, text = checked(capsys, *words)
    assert code == 0
    assert text.endswith("all as it should be\n")
    assert "pets: note: 3 classes have fewer than 10 images, the fewest: " in text
    assert re.search(r"\npets +3 +12 +0 +3 +15\n", text)
    assert re.search(r"\nreference +– +15 +– +– +15\n", text)

    files = images_of(tmp_path / "pets")
    bad = [spoil(file) for file in files[:12]]  # all are named
    shutil.copy(files[12], files[13])
    for file in images_of(tmp_path / "food")[5:]:
        shutil.copy(images_of(tmp_path / "food")[0], file)
    cut(images_of(tmp_path / "land")[0])
    code, text = checked(capsys, *words)
    assert code == 1
    assert all(f"{file}: " in text for file in bad)
    assert re.search(r"food: sets: 1 images of equal content are both in training and test images, the first: ", text)
    assert re.search(r"food: sets: 1 images of equal content are in several classes, the first: ", text)
    assert "reference: images: reference images: 1 of 15 images cannot be read" in text
    report = json.loads(checked(capsys, *words, "--json")[1])
    assert (report["benchmark"], report["data_root"]) == ("own", None)
    assert [one["ok"] for one in report["data_sets"]] == [False, False, False]


def test_own_tasks_are_checked_with_a_model(
    own: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", f"pets={tmp_path / 'pets'}", "food=atlas:food", "--model", own["model"], "--device", "cpu"]
    code, text = checked(capsys, *words)
    assert code == 0
    assert "zero-shot accuracy; nothing to compare it with" in text
    assert re.search(r"\nfood +12 ", text)
    code, text = checked(capsys, "--tasks", f"pets={tmp_path / 'nowhere'}", f"food={tmp_path / 'food'}")
    assert code == 1
    assert "pets: data: task 'pets': no such file or folder" in text
