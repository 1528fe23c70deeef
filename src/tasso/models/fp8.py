"""Linear layers whose products are of 8-bit floats (e4m3), for GPUs of compute capability 8.9 and newer.

Each row of both factors has a scale of its own. Rounding a row is then one pass over it: of a kernel, or of code that
the compiler makes. The output y = x Wᵀ and the gradient of x are such products. The gradient of W is a sum over
tokens: for it, both factors would have to be rounded and transposed once more, which takes longer than it saves, so it
is a product in bfloat16. Weights stay as they are, and what is kept for the backward pass is in bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.kernels import has_kernels

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
MULTIPLE = 16  # of both sides of a weight, for the GPU's products
LEAST_ROWS = 256  # there is nothing to gain from fewer
CAPABILITY = (8, 9)
TINY = 1e-30  # rows of zeros have a scale, too


def has_fp8(device: torch.device) -> bool:
    """Does the device have products in fp8?"""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= CAPABILITY


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `F.linear` of x (…, in) with a weight (out, in), in bfloat16 with products in fp8.

    Few rows, and weights whose sides are no multiples of 16, are multiplied by `F.linear`.
    """
    if weight.shape[0] % MULTIPLE or weight.shape[1] % MULTIPLE or x.numel() < LEAST_ROWS * x.shape[-1]:
        return F.linear(x, weight, bias)
    rows, weight = x.reshape(-1, x.shape[-1]).bfloat16(), weight.bfloat16()  # as a teacher's weights are kept
    y: Tensor = _Linear.apply(rows, weight)
    if bias is not None:  # not within the product: PyTorch 2.11 cannot compile that for a part of a bias
        y = y + bias.bfloat16()
    return y.view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """Of x (M, in) and W (out, in), (M, out); all in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        return product(gradient, weight.mT) if needs_x else None, gradient.mT @ x if needs_weight else None


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ rightᵀ of (M, K) and (N, K), rounded to fp8 row by row; returns bfloat16, (M, N)."""
    (a, a_scales), (b, b_scales) = rounded(left), rounded(right)
    # The GPU wants rows of the left factor and columns of the right one to be contiguous.
    y: Tensor = torch._scaled_mm(a, b.mT, a_scales, b_scales.mT, out_dtype=torch.bfloat16, use_fast_accum=True)
    return y


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (M, K) in fp8, contiguous, each divided by its scale; and the scales, (M, 1)."""
    if not torch.compiler.is_compiling() and has_kernels(rows.device):
        from tasso.kernels import rounding

        if rows.shape[1] <= rounding.WIDEST:
            return rounding.rounded(rows, FP8, TINY)
    scales = rows.abs().amax(1, keepdim=True).float().clamp(min=TINY) / LARGEST
    return (rows / scales).to(FP8).contiguous(), scales
