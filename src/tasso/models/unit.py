"""Vectors of unit length."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasso.kernels import has_kernels


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
        ctx.eps, ctx.kernels = eps, _kernels(x)
        if ctx.kernels is not None:
            rows, lengths = ctx.kernels.unit(x.reshape(-1, x.shape[-1]), eps)
            ctx.save_for_backward(rows, lengths)
            y: Tensor = rows.view(x.shape)
            return y
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(eps)
        y = x / lengths
        ctx.save_for_backward(y, lengths)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        y, lengths = ctx.saved_tensors
        if ctx.kernels is not None:
            d_x: Tensor = ctx.kernels.unit_backward(gradient.reshape(y.shape), y, lengths, ctx.eps)
            return d_x.view(gradient.shape), None
        along = (y * gradient).sum(-1, keepdim=True) * (lengths > ctx.eps)
        return torch.addcmul(gradient, y, along, value=-1) / lengths, None


def _kernels(x: Tensor) -> ModuleType | None:
    """Those that make one operation of several, where they can run."""
    if x.dtype != torch.float32 or torch.compiler.is_compiling() or not has_kernels(x.device):
        return None
    from tasso.kernels import unit as kernels

    return kernels
