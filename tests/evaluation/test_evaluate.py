"""Accuracy rows: which images are scored against which classes, and how often they are embedded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from axis_clip import AxisClip, Vectors, images, task, u, v, x, y, z
from method_runs import learner_for
from tasso.config import from_dict
from tasso.data import load_sequence
from tasso.data.readers.split import first_of_each
from tasso.evaluation.accuracy import accuracy_rows
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference


def test_rows_of_both_settings_are_exact_and_each_image_is_embedded_once() -> None:
    clip = AxisClip()
    tasks = [task("xyz", 0, 1, 2, 1), task("uv", 0, 1, 1, 1, 0)]
    pixels = [
        # correct, correct, correct among its own classes but nearest to v, wrong
        Vectors(x, y, 0.8 * v + 0.6 * z, x),
        # correct, correct among its own classes but nearest to y (index 1 in its task too), correct, wrong, correct
        Vectors(u, 0.8 * y + 0.6 * v, v, u, u),
    ]
    progress: list[int] = []
    rows = accuracy_rows(Inference(cast(Clip, clip)), tasks, pixels, ("{}",), 2, progress.append)
    assert rows.mtil == [75.0, 80.0]
    assert rows.mcil == [50.0, 60.0]
    assert clip.batches == progress == [2, 2, 2, 2, 1]


def test_seen_classes_are_those_of_the_tasks_learned_so_far() -> None:
    tasks = [task("xy", 0, 1), task("z", 0), task("uv", 0, 1)]
    pixels = [Vectors(0.8 * z + 0.6 * x, y), Vectors(0.8 * u + 0.6 * z), Vectors(u, 0.8 * x + 0.6 * v)]
    rows = accuracy_rows(Inference(cast(Clip, AxisClip())), tasks, pixels, ("{}",), 2, learned=range(4))
    # Nothing learned: own classes. After one task: its own. After two: z takes the first image. After three: all.
    assert rows.seen == [[100, 100, 100], [100, 100, 100], [50, 100, 100], [50, 0, 50]]
    assert rows.seen[0] == rows.mtil
    assert rows.seen[3] == rows.mcil


def test_classes_of_the_same_name_are_one_class() -> None:
    tasks = [task("xy", 0, 1), task("yx", 0, 1)]
    pixels = [Vectors(x, y), Vectors(y, x)]
    apart = accuracy_rows(Inference(cast(Clip, AxisClip())), tasks, pixels, ("{}",), 2)
    merged = accuracy_rows(Inference(cast(Clip, AxisClip())), tasks, pixels, ("{}",), 2, merge_names=True, learned=[2])
    assert (apart.mcil, merged.mcil, merged.seen) == ([100, 0], [100, 100], [[100, 100]])


def test_a_run_embeds_each_test_set_once_per_checkpoint(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_for(quick, method="finetune", eval_batch_size=12)
    batches: list[int] = []

    def spy(self: Clip, pixels: Tensor, encode: Callable[[Clip, Tensor], Tensor] = Clip.encode_images) -> Tensor:
        if not torch.is_grad_enabled():
            batches.append(len(pixels))
            assert not self.visual.training
        return encode(self, pixels)

    monkeypatch.setattr(Clip, "encode_images", spy)
    learner.run()
    # Zero-shot and after each of two tasks, two sets of 18 images each.
    assert batches == [12, 6] * 2 * 3


def test_first_of_each_class_in_order() -> None:
    chosen = first_of_each(images(2, 0, 0, 2, 0, 1, 2), 2)
    assert chosen.keys == ("0.png", "1.png", "2.png", "3.png", "5.png")
    assert chosen.labels.tolist() == [2, 0, 0, 2, 1]


def test_fewer_test_images_and_all_training_images(quick: dict[str, Any]) -> None:
    whole = load_sequence(from_dict(quick))
    fewer = load_sequence(from_dict({**quick, "test_per_class": 2}))
    for before, after in zip(whole.tasks, fewer.tasks, strict=True):
        assert (len(before.train), len(before.test)) == (36, 18)
        assert after.test.keys == before.test.keys[:6], "labels cycle through the classes in these sets"
        assert np.bincount(after.test.labels).tolist() == [2, 2, 2]
        assert after.train.keys == before.train.keys


class TurnedTexts(Inference):
    """A text-side adapter: every class embedding is turned into its opposite."""

    def class_embeddings(self, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        return -super().class_embeddings(names, templates)


def test_a_text_side_adapter_overrides_one_function() -> None:
    inference = TurnedTexts(cast(Clip, AxisClip()))
    scores = inference.scores(Embedded(torch.stack([x, u])), [["x", "y"], ["u"]], ["{}"])
    assert scores.tolist() == [[-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]
    assert torch.equal(cast(Tensor, inference.texts(["x"], ["{}"])), -x[None])
