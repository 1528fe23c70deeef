"""Files that change or go away while they are used, or between a run and its resume."""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from own_images import write_folder
from tasso.config import from_dict
from tasso.data.annotated import FolderSource
from tasso.data.images import PixelCache, Preprocess, thread_pool
from tasso.data.images.pack import Index, Pack
from tasso.data.task import ImageSet
from tasso.decoding import processes
from tasso.decoding.worker import Stored
from tasso.errors import DataError
from tasso.training.learner import learn


def test_images_replaced_under_the_same_names_are_told(
    quick: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("textures", "pets"):
        write_folder(tmp_path / name, name, images=8)
    tasks = [f"{name}={tmp_path / name}" for name in ("textures", "pets")]
    options = {k: v for k, v in quick.items() if k in ("model", "steps", "batch_size", "device", "out", "lr")}
    config = from_dict({**options, "tasks": tasks, "method": "finetune", "batch_size": 4})
    with caplog.at_level(logging.WARNING, "tasso"):
        learn(config)
        learn(config)
        assert "replaced" not in caplog.text
        image = next((tmp_path / "pets").rglob("*.png"))
        Image.new("RGB", (16, 16)).save(image)
        os.utime(image, ns=(0, 10**18))
        learn(config)
    assert "images of pets have other sizes or times" in caplog.text


def test_an_image_replaced_during_a_run_is_named(tmp_path: Path) -> None:
    keys = tuple(f"{index}.png" for index in range(4))
    for key in keys:
        Image.new("RGB", (20, 20)).save(tmp_path / key)
    images = ImageSet(FolderSource(tmp_path), keys, np.zeros(4, dtype=np.int64))
    preprocess = Preprocess(16, (0.5,) * 3, (0.5,) * 3)
    pixels = PixelCache(preprocess, torch.device("cpu"), thread_pool(1), 0.0).pixels(images, "a set")
    Image.new("RGB", (30, 20)).save(tmp_path / "2.png")
    with pytest.raises(DataError, match=r"2\.png: it was replaced"):
        pixels.eval_view(np.array([1, 2]))


def test_a_pack_that_is_cut_during_a_run_is_named(tmp_path: Path) -> None:
    sizes = np.array([[2, 2, 2, 2]] * 3)
    (tmp_path / "pixels.u8").write_bytes(bytes(3 * 3 * 4))
    pack = Pack(tmp_path, Index("pixels.u8", 2, ["a", "b", "c"], sizes, {}))
    assert pack.image(2).shape == (3, 2, 2)
    os.truncate(tmp_path / "pixels.u8", 5)
    with pytest.raises(DataError, match=r"pixels\.u8: damaged: it was cut to 5 bytes"):
        pack.image(2)


def test_a_decoding_process_that_is_stuck_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "STUCK_SECONDS", 0.3)
    monkeypatch.setattr(processes, "_failures", [])
    stuck = processes.DecodingProcess()
    os.kill(stuck.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(processes, "_idle", deque([stuck]))
    pixels = np.zeros((600, 600, 3), dtype=np.uint8)  # more than fits into a pipe
    [view] = processes.view_all_elsewhere(shape_of, [(Stored(pixels, True, "x"), None)])
    assert view == (600, 600, 3)
    assert "did not answer" in caplog.text
    assert stuck.process.poll() is not None


def shape_of(image: Any, _: None) -> tuple[int, ...]:
    return tuple(image.shape)
