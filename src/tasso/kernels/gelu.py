"""Bias and GELU."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasso.kernels.sums import PROGRAMS, column_sums


def gelu(x: Tensor, bias: Tensor, quick: bool) -> Tensor:
    """GELU of x + bias, (…, D) and (D,), in bfloat16; `quick`: OpenAI's approximation x·σ(1.702 x)."""
    y: Tensor = _Gelu.apply(x, bias, quick)
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, quick: bool) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        _run_gelu(_gelu, (x, bias, y), x, quick)
        ctx.save_for_backward(x, bias)
        ctx.quick = quick
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        d_x = torch.empty_like(x)
        parts = _run_gelu(_gelu_backward, (d_y.contiguous(), x, bias, d_x), x, ctx.quick, ctx.needs_input_grad[1])
        return d_x, None if parts is None else column_sums(parts), None


def _run_gelu(kernel: Any, tensors: tuple[Tensor, ...], x: Tensor, quick: bool, sums: bool = False) -> Tensor | None:
    """Returns partial sums (programs, D) of the gradient if `sums`."""
    width, rows = x.shape[-1], x.numel() // x.shape[-1]
    block = min(1024, triton.next_power_of_2(width))
    columns = triton.cdiv(width, block)
    tile = 2048 // block
    each = tile * (triton.cdiv(rows, tile * PROGRAMS) if sums else 1)
    programs = triton.cdiv(rows, each)
    parts = torch.empty(programs, width, dtype=torch.float32, device=x.device) if sums else None
    more = {"parts_ptr": x if parts is None else parts, "SUMS": sums} if kernel is _gelu_backward else {}
    with torch.cuda.device_of(x):
        kernel[(programs, columns)](
            *tensors, rows=rows, each=each, WIDTH=width, BLOCK=block, TILE=tile, QUICK=quick, num_warps=4, **more
        )
    return parts


@triton.jit(do_not_specialize=["rows", "each"])
def _gelu(
    x_ptr, bias_ptr, y_ptr, rows, each,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, QUICK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < WIDTH
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.bfloat16).to(tl.float32)
    begin = tl.program_id(0) * each
    end = tl.minimum(begin + each, rows)
    for first in range(begin, end, TILE):
        row = first + tl.arange(0, TILE)
        mask = (row < end)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
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
