"""Vectors of unit length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def unit(x: Tensor, eps: float = 1e-12) -> Tensor:
    """The rows of x (…, D) divided by their lengths, or by eps if they are shorter: `F.normalize` along the last side.

    Its gradient in 6 operations instead of 13: small models are bound by the number of operations, and a step has many
    of these.
    """
    y: Tensor = _Unit.apply(x, eps)
    return y


class _Unit(torch.autograd.Function):
    """y = x / n with n = max(‖x‖, eps), so the gradient is (g − y⟨y, g⟩) / n, or g / n where n = eps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(eps)
        y: Tensor = x / lengths
        ctx.save_for_backward(y, lengths)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        y, lengths = ctx.saved_tensors
        along = (y * gradient).sum(-1, keepdim=True) * (lengths > ctx.eps)
        return torch.addcmul(gradient, y, along, value=-1) / lengths, None
