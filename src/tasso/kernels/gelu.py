"""Bias and GELU."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasso.kernels import launching
from tasso.kernels.sums import column_sums, shares


def gelu(x: Tensor, bias: Tensor, quick: bool) -> Tensor:
    """GELU of x + bias, (…, D) and (D,), in bfloat16; `quick`: OpenAI's approximation x·σ(1.702 x)."""
    y: Tensor = _Gelu.apply(x, bias, quick)
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, quick: bool) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, width, block, tile = _sizes(x)
        with launching(x):
            _gelu[(triton.cdiv(rows, tile), triton.cdiv(width, block))](
                x, bias, y, rows, WIDTH=width, BLOCK=block, TILE=tile, QUICK=quick, num_warps=4
            )
        ctx.save_for_backward(x, bias)
        ctx.quick = quick
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        d_x, sums = torch.empty_like(x), ctx.needs_input_grad[1]
        rows, width, block, tile = _sizes(x)
        each, programs = shares(rows, tile, triton.cdiv(width, block))
        parts = torch.empty(programs if sums else 0, width, dtype=torch.float32, device=x.device)
        with launching(x):
            _gelu_backward[(programs, triton.cdiv(width, block))](
                d_y.contiguous(), x, bias, d_x, parts, rows, each,
                WIDTH=width, BLOCK=block, TILE=tile, QUICK=ctx.quick, SUMS=sums, num_warps=4,
            )  # fmt: skip
        return d_x, column_sums(parts) if sums else None, None


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    """Rows, their width, the columns of a program, and the rows that it has at once."""
    width = x.shape[-1]
    block = min(1024, triton.next_power_of_2(width))
    return math.prod(x.shape[:-1]), width, block, max(1, 2048 // block)


@triton.jit(do_not_specialize=["rows"])
def _gelu(
    x_ptr, bias_ptr, y_ptr, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, QUICK: tl.constexpr
):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    mask = (row < rows)[:, None] & is_column[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.bfloat16).to(tl.float32)
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
    y = x * tl.sigmoid(1.702 * x) if QUICK else 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows", "each"])
def _gelu_backward(
    d_y_ptr, x_ptr, bias_ptr, d_x_ptr, parts_ptr, rows, each,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, QUICK: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.bfloat16).to(tl.float32)
    d_bias = tl.zeros((TILE, BLOCK), tl.float32)
    begin = tl.program_id(0) * each
    end = tl.minimum(begin + each, rows)
    for first in range(begin, end, TILE):
        row = first + tl.arange(0, TILE)
        mask = (row < end)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
        d_y = tl.load(d_y_ptr + place, mask=mask, other=0.0).to(tl.float32)
        if QUICK:
            s = tl.sigmoid(1.702 * x)
            slope = s * (1 + 1.702 * x * (1 - s))
        else:
            density = tl.exp2(-0.7213475204444817 * x * x) * 0.3989422804014327
            slope = 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * density
        d_x = d_y * slope
        tl.store(d_x_ptr + place, d_x.to(d_x_ptr.dtype.element_ty), mask=mask)
        if SUMS:
            d_bias += d_x
    if SUMS:
        tl.store(parts_ptr + tl.program_id(0) * WIDTH + column, tl.sum(d_bias, 0), mask=is_column)
