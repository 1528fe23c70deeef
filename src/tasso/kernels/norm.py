"""Residual stream, bias and layer norm."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasso.kernels import launching
from tasso.kernels.sums import column_sums, shares

WIDEST = 4096  # numbers of a token: a row is normalised at once
Gradients = tuple[Tensor | None, ...]


def add_norm(
    x: Tensor, update: Tensor | None, bias: Tensor | None, weight: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Layer norm of a sum: t = x + update + bias and its normalised rows, in bfloat16.

    Args:
        x: (…, D), in float32 or bfloat16; t is in the same.
        update: (…, D) in bfloat16, and its bias (D,); without it t is x.
        weight, shift: (D,) of the normalisation.
    """
    total, normed = _AddNorm.apply(x, update, bias, weight, shift, eps)
    return (x if update is None else total), normed


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, update: Tensor | None, bias: Tensor | None, weight: Tensor, shift: Tensor, eps: float
    ) -> tuple[Tensor | None, Tensor]:
        width, rows = x.shape[-1], x.numel() // x.shape[-1]
        x = x.contiguous()
        total = x if update is None else torch.empty_like(x)
        normed = torch.empty_like(x, dtype=torch.bfloat16)
        # Two tensors, not parts of one: both are aligned then, and the kernel is compiled once.
        mean, scale = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        block = triton.next_power_of_2(width)
        tile = max(1, 2048 // block)
        with launching(x):
            _add_norm[(triton.cdiv(rows, tile),)](
                x, x if update is None else update.contiguous(), weight if bias is None else bias, weight, shift, total,
                normed, mean, scale, rows, eps,
                WIDTH=width, BLOCK=block, TILE=tile, ADDS=update is not None, HAS_BIAS=bias is not None,
                num_warps=4 if tile * block <= 2048 else 8,
            )  # fmt: skip
        ctx.save_for_backward(total, mean, scale, weight)
        ctx.adds, ctx.has_bias = update is not None, bias is not None
        ctx.set_materialize_grads(False)
        return (total if update is not None else None), normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, d_normed: Tensor | None) -> Gradients:
        total, mean, scale, weight = ctx.saved_tensors
        if d_normed is None:
            return *_of_sum(ctx, d_total), None, None, None
        width, rows = total.shape[-1], total.numel() // total.shape[-1]
        sums = any(ctx.needs_input_grad[index] for index in (2, 3, 4))
        block = triton.next_power_of_2(width)
        tile = max(1, 1024 // block)
        each, programs = shares(rows, tile)
        d_x = torch.empty_like(total)
        rounds = ctx.adds and total.dtype != torch.bfloat16
        d_update = torch.empty_like(total, dtype=torch.bfloat16) if rounds else d_x
        parts = torch.empty(programs if sums else 0, 3, width, dtype=torch.float32, device=total.device)
        with launching(total):
            _add_norm_backward[(programs,)](
                d_normed.contiguous(), d_normed if d_total is None else d_total.contiguous(), total, mean, scale,
                weight, d_x, d_update, parts, rows, each,
                WIDTH=width, BLOCK=block, TILE=tile, ADDS=d_total is not None, ROUNDS=rounds, SUMS=sums,
                num_warps=max(1, block // 1024),
            )  # fmt: skip
        d_weight, d_shift, d_bias = (
            column_sums(parts.view(programs, 3 * width)).view(3, width) if sums else (None, None, None)
        )
        return d_x, d_update if ctx.adds else None, d_bias if ctx.has_bias else None, d_weight, d_shift, None


def _of_sum(ctx: Any, d_total: Tensor | None) -> Gradients:
    """Gradients of x, update and bias where the norm of their sum was not used."""
    if d_total is None or not ctx.adds:
        return d_total, None, None
    d_bias = d_total.sum(tuple(range(d_total.ndim - 1)), dtype=torch.float32) if ctx.has_bias else None
    return d_total, d_total.bfloat16(), d_bias


@triton.jit(do_not_specialize=["rows"])
def _add_norm(
    x_ptr, update_ptr, bias_ptr, weight_ptr, shift_ptr, total_ptr, normed_ptr, mean_ptr, scale_ptr, rows, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, ADDS: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, BLOCK)
    is_column = column < WIDTH
    mask = (row < rows)[:, None] & is_column[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    if ADDS:
        update = tl.load(update_ptr + place, mask=mask, other=0.0).to(tl.float32)
        if HAS_BIAS:
            update += tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.bfloat16).to(tl.float32)[None, :]
        rounded = (x + update).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + place, rounded, mask=mask)
        x = rounded.to(tl.float32)
    mean = tl.sum(tl.where(mask, x, 0.0), 1) / WIDTH
    apart = tl.where(mask, x - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 1) / WIDTH + eps)
    weight = tl.load(weight_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    shift = tl.load(shift_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    normed = apart * scale[:, None] * weight[None, :] + shift[None, :]
    tl.store(normed_ptr + place, normed.to(normed_ptr.dtype.element_ty), mask=mask)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(scale_ptr + row, scale, mask=row < rows)


@triton.jit(do_not_specialize=["rows", "each"])
def _add_norm_backward(
    d_normed_ptr, d_total_ptr, total_ptr, mean_ptr, scale_ptr, weight_ptr, d_x_ptr, d_update_ptr, parts_ptr, rows, each,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, ADDS: tl.constexpr, ROUNDS: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_column = column < WIDTH
    weight = tl.load(weight_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    d_weight = tl.zeros((TILE, BLOCK), tl.float32)
    d_shift = tl.zeros((TILE, BLOCK), tl.float32)
    d_bias = tl.zeros((TILE, BLOCK), tl.float32)
    end = tl.minimum(program * each + each, rows)
    for first in range(program * each, end, TILE):
        row = first + tl.arange(0, TILE)
        is_row = row < end
        mask = is_row[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        d_normed = tl.load(d_normed_ptr + place, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(total_ptr + place, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=is_row, other=0.0)
        scale = tl.load(scale_ptr + row, mask=is_row, other=0.0)
        unit = tl.where(mask, (x - mean[:, None]) * scale[:, None], 0.0)
        weighted = d_normed * weight[None, :]
        along = tl.sum(weighted * unit, 1) / WIDTH
        constant = tl.sum(weighted, 1) / WIDTH
        d_x = (weighted - unit * along[:, None] - constant[:, None]) * scale[:, None]
        if ADDS:
            d_x += tl.load(d_total_ptr + place, mask=mask, other=0.0).to(tl.float32)
        tl.store(d_x_ptr + place, d_x.to(d_x_ptr.dtype.element_ty), mask=mask)
        if ROUNDS:
            tl.store(d_update_ptr + place, d_x.to(d_update_ptr.dtype.element_ty), mask=mask)
        if SUMS:
            d_weight += d_normed * unit
            d_shift += d_normed
            d_bias += tl.where(mask, d_x, 0.0)
    if SUMS:
        part = parts_ptr + program * 3 * WIDTH + column
        tl.store(part, tl.sum(d_weight, 0), mask=is_column)
        tl.store(part + WIDTH, tl.sum(d_shift, 0), mask=is_column)
        tl.store(part + 2 * WIDTH, tl.sum(d_bias, 0), mask=is_column)
