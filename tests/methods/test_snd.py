"""SnD's loss against a slow, obvious re-computation, and its two teachers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from method_runs import learner_for
from tasso.methods import build_method
from tasso.methods.losses import selected_distances, teacher_preference
from tasso.methods.snd import SelectAndDistill
from tasso.training.checkpoints import save_checkpoint


def units(seed: int, n: int = 6, d: int = 5) -> torch.Tensor:
    vectors = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(vectors, dim=-1)


def slow_preference(previous: torch.Tensor, pretrained: torch.Tensor) -> list[float]:
    return [
        1 / (1 + math.exp(-6 * (float(np.linalg.norm(a.numpy() - b.numpy())) - 0.2)))
        for a, b in zip(previous, pretrained, strict=True)
    ]


def test_preference_is_the_authors_sigmoid() -> None:
    previous, pretrained = units(1), units(2)
    previous[0] = pretrained[0]
    found = teacher_preference(previous, pretrained, 6.0, 0.2)
    assert found.tolist() == pytest.approx(slow_preference(previous, pretrained), rel=1e-12)
    assert float(found[0]) == pytest.approx(0.2315, abs=1e-4)  # soft: even where both agree


def test_both_selections_against_loops() -> None:
    student, previous, pretrained = units(1), units(2), units(3)
    s = slow_preference(previous, pretrained)
    old = [float(((f - p) ** 2).sum()) for f, p in zip(student, previous, strict=True)]
    new = [float(((f - p) ** 2).sum()) for f, p in zip(student, pretrained, strict=True)]
    preference = teacher_preference(previous, pretrained, 6.0, 0.2)
    expected = np.mean(np.multiply(s, old)), np.mean(np.multiply(1 - np.array(s), new))
    found = selected_distances(student, previous, pretrained, preference, "per_sample")
    assert [float(v) for v in found] == pytest.approx(expected, rel=1e-12)
    # The authors' code: [B, 1] times [B] broadcasts to B × B, of which the mean is taken.
    column, rows = preference[:, None], torch.tensor(old, dtype=torch.float64)
    broadcast = float((column * rows).mean()), float(((1 - column) * torch.tensor(new, dtype=torch.float64)).mean())
    found = selected_distances(student, previous, pretrained, preference, "batch_mean")
    assert [float(v) for v in found] == pytest.approx(broadcast, rel=1e-12)


def test_protocols_choose_the_selection() -> None:
    for protocol, selection in (("code", "batch_mean"), ("paper", "per_sample")):
        method = build_method({"name": "snd"}, protocol)  # type: ignore[arg-type]
        assert isinstance(method, SelectAndDistill)
        assert method.selection == selection


@pytest.mark.usefixtures("float32")
def test_teachers_are_the_pretrained_and_the_previous_model(quick: dict[str, Any]) -> None:
    learner = learner_for(quick, method="snd")
    start = {key: value.clone() for key, value in learner.clip.state("visual").items()}
    first = learner.begin(0)
    method = first.method
    assert isinstance(method, SelectAndDistill)
    assert method.teacher_encoders["previous"] is method.teacher_encoders["pretrained"]
    for _ in range(3):
        first.advance()
    save_checkpoint(learner.clip, learner.method, learner.folder, 0, "dtd", {})
    learned = {key: value.clone() for key, value in learner.clip.state("visual").items()}
    again = learner_for(quick, method="snd")  # a new process goes on with the second task
    second = again.begin(1).method
    assert isinstance(second, SelectAndDistill)
    for teacher, expected in (("pretrained", start), ("previous", learned)):
        for key, value in second.teacher_encoders[teacher].tower.state_dict().items():
            assert torch.equal(value, expected[f"visual.{key}"])
