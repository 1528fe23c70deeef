"""Vectors of unit length, and their gradient."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tasso.models.unit import unit


@given(seed=st.integers(0, 10_000), length=st.floats(1e-3, 1e3), eps=st.sampled_from([1e-12, 1e-6, 0.5]))
def test_values_and_gradients_are_those_of_torch(seed: int, length: float, eps: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = length * torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    x[0, 0] = 0
    x[0, 1] *= 1e-9  # shorter than some eps
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    one, other = unit(ours, eps), F.normalize(theirs, dim=-1, eps=eps)
    assert torch.equal(one, other)
    weights = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    expected = torch.autograd.grad(other, theirs, weights)[0]
    scale = float(expected.abs().max())
    torch.testing.assert_close(torch.autograd.grad(one, ours, weights)[0], expected, rtol=1e-9, atol=1e-9 * scale)


def test_half_precision_stays() -> None:
    assert unit(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
