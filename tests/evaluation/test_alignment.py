"""Distances between images and class texts: their summary, computed without embedding images again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from axis_clip import AxisClip, Vectors, task, u, v, x, y, z
from method_runs import options_for
from tasso.config import from_dict
from tasso.evaluation.accuracy import accuracy_rows
from tasso.evaluation.alignment import BINS, RANGE, alignment
from tasso.methods.moe.routed import RoutedInference
from tasso.models.clip import Clip
from tasso.models.inference import Inference
from tasso.training.checkpoints import load_checkpoint
from tasso.training.learner import learn
from tasso.training.results import to_json
from tasso.training.run_folder import RunFolder


def unit(rows: int, seed: int, dim: int = 6) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=-1)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 10_000))
def test_summary_equals_a_slow_computation(images: int, classes: int, seed: int) -> None:
    features, texts = unit(images, seed), unit(classes, seed + 1)
    labels = torch.randint(classes, (images,), generator=torch.Generator().manual_seed(seed + 2))
    found = alignment(features, texts, labels)
    slow = [1 - float(f.double() @ texts[label].double()) for f, label in zip(features, labels.tolist(), strict=True)]
    assert found["count"] == images == sum(found["counts"])
    assert found["mean"] == pytest.approx(np.mean(slow), abs=1e-6)
    assert found["quantiles"] == pytest.approx(np.quantile(slow, (0, 0.25, 0.5, 0.75, 1)).tolist(), abs=1e-6)
    width = (RANGE[1] - RANGE[0]) / BINS
    ends = [found["first_bin"], found["first_bin"] + len(found["counts"]) - 1]
    assert [int(value / width) for value in (min(slow), max(slow))] == pytest.approx(ends, abs=1)
    # A median read from the histogram is within half a bin of one of the two distances in the middle.
    middles = (np.arange(len(found["counts"])) + found["first_bin"] + 0.5) * width
    read = np.repeat(middles, found["counts"])[(images - 1) // 2]
    assert read == pytest.approx(sorted(slow)[(images - 1) // 2], abs=0.002 + 1e-9)
    for number, distance in enumerate(found["prototypes"]):
        own = features[labels == number].double()
        if not len(own):
            assert distance is None
            continue
        mean = own.mean(0)
        assert distance == pytest.approx(1 - float(mean @ texts[number].double() / mean.norm()), abs=2e-6)


def test_accuracy_rows_have_distances_to_the_right_classes() -> None:
    tasks = [task("xyz", 0, 1, 2), task("uv", 0, 1, 1)]
    pixels = [Vectors(x, x, -z), Vectors(u, 0.8 * y + 0.6 * v, v)]
    clip = AxisClip()
    inference = Inference(cast(Clip, clip))
    rows = accuracy_rows(inference, tasks, pixels, ("{}",), 8, with_alignment=True)
    assert rows.alignment is not None
    assert [part["quantiles"][0::2] for part in rows.alignment] == [[0, 1, 2], [0, 0, 0.4]]
    assert rows.alignment[0]["prototypes"] == [0, 1, 2]
    assert rows.alignment[0]["counts"][0] == rows.alignment[0]["counts"][-1] == 1
    assert rows.alignment[1]["prototypes"] == pytest.approx([0, 1 - 1.6 / np.hypot(1.6, 0.8)], abs=1e-6)
    assert clip.batches == [3, 3], "no image is embedded twice"
    assert accuracy_rows(inference, tasks, pixels, ("{}",), 8).alignment is None


def test_a_run_stores_distances_of_the_first_and_the_last_model(quick: dict[str, Any]) -> None:
    found = learn(from_dict(quick))["alignment"]
    folder = RunFolder(Path(str(quick["out"])))
    assert json.loads(folder.results_file.read_text())["alignment"] == found
    assert (found["bins"], found["range"]) == (500, [0, 2])
    for stage in ("zero_shot", "last"):
        assert [part["count"] for part in found[stage]] == [18, 18]
        assert [len(part["prototypes"]) for part in found[stage]] == [3, 3]
    assert found["zero_shot"] != found["last"]
    assert all(len(line) < 4000 for line in folder.results_file.read_text().splitlines())
    assert len(folder.results_file.read_text().splitlines()) < 170


@pytest.mark.slow
def test_a_class_with_several_texts_has_no_distance(quick: dict[str, Any]) -> None:
    results = learn(from_dict({**quick, "method": options_for("moe-adapters")}))
    assert results["finished"]
    assert results["alignment"]["last"] is None
    assert len(results["alignment"]["zero_shot"]) == 2
    from tasso.models.loading import load_clip

    _, inference = load_checkpoint(load_clip(str(quick["model"])), RunFolder(Path(str(quick["out"]))))
    assert isinstance(inference, RoutedInference)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_to_json_is_the_same_json(value: Any) -> None:
    document = {"a": value}
    assert json.loads(to_json(document)) == document


def test_lists_of_numbers_are_on_one_line() -> None:
    assert to_json({"a": [[1, 2.5e-7], [-3, None]], "b": ["[\n 1\n]"], "c": []}) == (
        '{\n "a": [\n  [1, 2.5e-07],\n  [-3, null]\n ],\n "b": [\n  "[\\n 1\\n]"\n ],\n "c": []\n}'
    )
