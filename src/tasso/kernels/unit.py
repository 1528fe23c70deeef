"""Vectors of unit length."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasso.kernels import launching


def unit(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Rows of x (N, D), float32, divided by their lengths or eps, whichever is larger; and these divisors, (N,)."""
    x = x.contiguous()
    y, lengths = torch.empty_like(x), torch.empty(len(x), dtype=x.dtype, device=x.device)
    with launching(x):
        _unit[(len(x),)](x, y, lengths, eps, WIDTH=x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, lengths


def unit_backward(gradient: Tensor, y: Tensor, lengths: Tensor, eps: float) -> Tensor:
    """The gradient of x, (N, D), from that of `unit`."""
    d_x = torch.empty_like(y)
    with launching(y):
        _unit_backward[(len(y),)](
            gradient.contiguous(), y, lengths, d_x, eps, WIDTH=y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1])
        )
    return d_x


@triton.jit
def _unit(x_ptr, y_ptr, lengths_ptr, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, 0)), eps)
    tl.store(y_ptr + row * WIDTH + column, x / length, mask=column < WIDTH)
    tl.store(lengths_ptr + row, length)


@triton.jit
def _unit_backward(gradient_ptr, y_ptr, lengths_ptr, d_x_ptr, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    gradient = tl.load(gradient_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0)
    y = tl.load(y_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0)
    length = tl.load(lengths_ptr + row)
    along = tl.where(length > eps, tl.sum(gradient * y, 0), 0.0)
    tl.store(d_x_ptr + row * WIDTH + column, (gradient - y * along) / length, mask=column < WIDTH)
