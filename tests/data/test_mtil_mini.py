"""Real images: the mtil-mini benchmark, where it is at hand (TASSO_MTIL_MINI, or shared/ beside the project)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasso
from tasso.cli import main
from tasso.config import from_dict
from tasso.data import load_sequence

DATA = Path(os.environ.get("TASSO_MTIL_MINI", Path(__file__).parents[2].parent / "shared" / "mtil-mini"))
pytestmark = pytest.mark.skipif(not (DATA / "dtd.zip").exists(), reason="mtil-mini is not on this machine")

OPTIONS: dict[str, Any] = {"benchmark": "mtil-mini", "data_root": str(DATA), "model": "nano", "device": "cpu"}


def test_every_data_set_passes_its_checks() -> None:
    sequence = load_sequence(from_dict({"benchmark": "mtil-mini", "data_root": str(DATA)}))
    assert len(sequence.tasks) == 8
    assert sum(len(task.class_names) for task in sequence.tasks) == 593
    assert sequence.reference is not None
    assert len(sequence.reference) == 10_000


def test_data_check_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "check", "--benchmark", "mtil-mini", "--data-root", str(DATA), "--no-decode"])
    assert capsys.readouterr().out.endswith("all as it should be\n")


def test_shipped_model_knows_real_images() -> None:
    """Two test images per class of three tasks: near the card's figures (91, 49 and 49 percent), far above chance."""
    found = tasso.evaluate(sequence="eurosat,dtd,actions", test_per_class=2, **OPTIONS)
    assert found["mtil"][0] > 70
    assert found["mtil"][1] > 25
    assert found["mtil"][2] > 25
    assert all(own >= every for own, every in zip(found["mtil"], found["mcil"], strict=True))


def test_a_short_run_on_real_images(tmp_path: Path) -> None:
    run = tasso.learn(
        sequence="dtd,eurosat", steps=2, batch_size=8, reference_batch_size=8, reference_images=64, test_per_class=1,
        lr=1e-4, method={"name": "tasso", "rank": 72}, out=str(tmp_path / "run"), **OPTIONS,
    )  # fmt: skip
    assert run.metrics["mtil"] is not None
    assert np.shape(run.results["mcil"]["matrix"]) == (2, 2)
    source = load_sequence(from_dict({"sequence": "eurosat", **OPTIONS})).tasks[0].test
    image = tmp_path / "tile.webp"
    content = source.source.read(source.keys[0])
    assert isinstance(content, bytes)
    image.write_bytes(content)
    assert len(run.classify(image, task="eurosat", top=3)[0]) == 3
