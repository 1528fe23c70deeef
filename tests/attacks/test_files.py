"""Files from somebody else: small ones that stand for much, pipes and devices, images that are programs."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasso
from tasso.data.annotated import FolderSource, ZipSource
from tasso.data.images import thread_pool
from tasso.data.images.files import read_image, read_upload
from tasso.data.readers.folder import read_folder
from tasso.decoding.pillow import decode_bytes
from tasso.decoding.whole import problem_of
from tasso.errors import ConfigError, DataError
from tasso.evaluation.predict import BATCH, predict_files
from tasso.files import read_yaml

MIB = 2**20


def memory_of(call: Callable[[], Any]) -> int:
    """Bytes that Python takes at most meanwhile."""
    tracemalloc.start()
    try:
        call()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


# -- small files that stand for much -------------------------------------------------------------------------------


def merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels + 1)]
    return "\n".join(lines) + "\n"


def test_merges_of_merges_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(merge_bomb(6))  # more would take a minute, where it is not refused

    def read() -> None:
        with pytest.raises(ConfigError, match=r"bomb\.yaml: not valid YAML: too large"):
            read_yaml(file)

    assert memory_of(read) < 8 * MIB
    file.write_text("one: &one {x: 1, y: 2}\ntwo: {<<: [*one, *one], y: 3}\n")
    assert read_yaml(file)["two"] == {"x": 1, "y": 3}, "merges themselves are fine"


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2], ids=["deflated", "bzip2"])
def test_few_bytes_in_a_zip_that_stand_for_many(tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.data.annotated.MAX_FILE", MIB, raising=False)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", kind) as archive:
        archive.writestr("a/bomb.png", bytes(64 * MIB))
        archive.writestr("a/fine.png", bytes(MIB))
    source = ZipSource(tmp_path / "bomb.zip", zipfile.ZipFile(tmp_path / "bomb.zip"), "a/")

    def read() -> None:
        with pytest.raises(ValueError, match="more than 1 MiB"):
            source.read("bomb.png")

    assert memory_of(read) < 8 * MIB
    assert len(source.read("fine.png")) == MIB


# -- pipes and devices ---------------------------------------------------------------------------------------------


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def zeros(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("make", [pipe, zeros])
def test_only_regular_files_are_read(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """Others may hang, or never end."""
    image, config, archive = (make(tmp_path / name) for name in ("a.png", "config.yaml", "images.zip"))
    results = tmp_path / "run"
    results.mkdir()
    make(results / "results.json")
    refused: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
        "image": (lambda: read_image(image), DataError),
        "config": (lambda: read_yaml(config), ConfigError),
        "zip": (lambda: read_folder(archive), DataError),
        "source": (lambda: FolderSource(tmp_path).read("a.png"), OSError),
        "run": (lambda: tasso.load(results), OSError),
    }
    for read, error in refused.values():
        with pytest.raises(error, match="not a regular file"):
            read()
    assert "not a regular file" in str(problem_of(image, thorough=False))


def test_a_folder_is_still_called_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        read_yaml(tmp_path)


# -- images --------------------------------------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def test_no_image_starts_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow starts Ghostscript for PostScript, whatever the file is called."""
    started: list[Any] = []
    monkeypatch.setattr("PIL.EpsImagePlugin.has_ghostscript", lambda: True)
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args, **_: started.append(args))
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **_: started.append(args))
    file = tmp_path / "photo.jpg"
    file.write_bytes(EPS)
    for read in (
        lambda: read_image(file),
        lambda: read_upload(EPS, 1000),
        lambda: decode_bytes(EPS, True, str(file)),
    ):
        with pytest.raises(DataError):
            read()
    assert isinstance(problem_of(file, thorough=False), DataError)
    assert not started


def test_classify_holds_few_full_images(quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of photos may be larger than the memory; the views that the model gets are small."""
    run = tasso.learn(**{**quick, "sequence": "dtd", "steps": 1})
    made: list[weakref.ref[Any]] = []
    most = 0

    def read(_: Any) -> Any:
        nonlocal most
        image = np.zeros((40, 30, 3), np.uint8)
        made.append(weakref.ref(image))
        most = max(most, sum(one() is not None for one in made))
        return image

    monkeypatch.setattr("tasso.evaluation.predict.read_image", read)
    monkeypatch.setattr("tasso.training.run.read_image", read)
    files = [tmp_path / f"{number}.png" for number in range(BATCH)]
    with thread_pool(2) as pool:
        assert len(list(predict_files(run.predictor, files, run.candidates(), 1, pool, skip=False))) == BATCH
    assert len(run.classify(files)) == BATCH
    assert most <= 4
