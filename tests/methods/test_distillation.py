"""Losses of the baselines, against slow and obvious re-computations in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from slow_losses import slow_d, softmax
from tasso.methods.losses import (
    alignment,
    distillation_both_ways,
    matching_targets,
    over_rms,
    soft_cross_entropy,
    squared_shift,
    with_consolidation,
    with_gradient,
)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(scale * np.random.default_rng(seed).normal(size=shape))


@given(st.integers(1, 6), st.integers(2, 5), st.floats(0.5, 5), st.integers(0, 99))
def test_d_is_a_cross_entropy_of_softened_logits(rows: int, columns: int, temperature: float, seed: int) -> None:
    teacher, student = random(rows, columns, seed=seed, scale=5), random(rows, columns, seed=seed + 1, scale=5)
    value = float(soft_cross_entropy(teacher, student, temperature))
    assert value == pytest.approx(slow_d(teacher.tolist(), student.tolist(), temperature), rel=1e-9)
    entropy = float(soft_cross_entropy(teacher, teacher, temperature))
    assert value >= entropy - 1e-9, "least where the student is the teacher"


def test_both_directions_of_d() -> None:
    teacher, student = random(4, 3, scale=5), random(4, 3, seed=1, scale=5)
    forth, back = distillation_both_ways(teacher, student, 2.0)
    assert float(forth) == pytest.approx(slow_d(teacher.tolist(), student.tolist(), 2.0), rel=1e-12)
    assert float(back) == pytest.approx(slow_d(teacher.T.tolist(), student.T.tolist(), 2.0), rel=1e-12)
    assert float(forth) != pytest.approx(float(back), rel=0.01)


def test_gradient_of_d_is_the_difference_of_the_softmaxes() -> None:
    teacher, student = random(4, 3, scale=5), random(4, 3, seed=1, scale=5).requires_grad_()
    soft_cross_entropy(teacher, student, 2.0).backward()
    # d/ds of T²·CE(p, q(s/T)) is T·(q − p), and the mean divides by the rows.
    expected = 2.0 * ((student / 2).softmax(-1) - (teacher / 2).softmax(-1)) / 4
    torch.testing.assert_close(student.grad, expected.detach(), rtol=1e-9, atol=1e-12)


def test_pairs_of_one_prompt_share_their_target() -> None:
    targets = matching_targets(torch.tensor([5, 2, 5, 7]))
    assert targets.tolist() == [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_alignment_in_both_directions(smoothing: float) -> None:
    logits = random(4, 4, scale=3)
    targets = matching_targets(torch.tensor([5, 2, 5, 7])).double()
    expected = 0.0
    for table in (logits, logits.T):
        for row, target in zip(table.tolist(), targets.tolist(), strict=True):
            soft = [(1 - smoothing) * t + smoothing / 4 for t in target]
            expected -= sum(a * math.log(b) for a, b in zip(soft, softmax(row), strict=True)) / 4
    assert float(alignment(logits, targets, smoothing)) == pytest.approx(expected, rel=1e-12)


def weights() -> list[Tensor]:
    return [random(3, 2, seed=3).requires_grad_(), random(5, seed=4).requires_grad_()]


def test_known_gradients_are_handed_on_and_scaled() -> None:
    parameters, gradients = weights(), [random(3, 2, seed=5), random(5, seed=6)]
    value = with_gradient(torch.tensor(7.0, dtype=torch.float64), parameters, gradients)
    assert float(value.detach()) == 7.0
    (3 * value).backward()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 3 * gradient)


def test_squared_shift_is_what_autograd_says() -> None:
    parameters, anchors = weights(), [random(3, 2, seed=7), random(5, seed=8)]
    slow = 0.7 * sum(((p - a) ** 2).sum() for p, a in zip(parameters, anchors, strict=True))
    expected = torch.autograd.grad(slow, parameters)
    value = squared_shift(parameters, anchors, 0.7)
    value.backward()
    assert float(value.detach()) == pytest.approx(float(slow.detach()), rel=1e-12)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_consolidation_holds_what_matters_to_a_loss() -> None:
    gradients = [torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)]
    mean = (9 + 16) / 3
    importance = [torch.tensor([9 / mean, 0, 16 / mean], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)]
    for unit, expected in zip(over_rms(gradients), importance, strict=True):
        torch.testing.assert_close(unit.square(), expected)  # no gradient, no hold, and no 0/0
    parameters = [random(3, seed=1).requires_grad_(), random(2, seed=2).requires_grad_()]
    anchors = [random(3, seed=3), random(2, seed=4)]
    slow = 2.0 * sum((f * (p - a) ** 2).sum() for f, p, a in zip(importance, parameters, anchors, strict=True))
    held = torch.autograd.grad(slow, parameters)
    value, together = with_consolidation(gradients, parameters, anchors, 2.0)
    assert float(value) == pytest.approx(float(slow.detach()), rel=1e-12)
    for found, own, pull in zip(together, gradients, held, strict=True):
        torch.testing.assert_close(found, own + pull)


@pytest.mark.parametrize("size", [1e-30, 1e-24, 1e-21, 1e-15, 1.0, 1e15])
def test_importance_does_not_depend_on_the_size_of_gradients(size: float) -> None:
    """In float32, whose squares vanish below 1e-23; there the importance fades."""
    unit = torch.tensor([3.0, 0.0, 4.0]) / (25 / 3) ** 0.5
    (found,) = over_rms([unit * size])
    if size >= 1e-15:
        torch.testing.assert_close(found, unit)
    else:
        assert bool((found.abs() <= unit).all())
