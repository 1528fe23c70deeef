"""Rows in 8-bit floats."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasso.kernels import launching

WIDEST = 2**14  # numbers of a row, which is read once


def rounded(rows: Tensor, dtype: torch.dtype, tiny: float) -> tuple[Tensor, Tensor]:
    """As `models.fp8.rounded`: rows (M, K) in an 8-bit dtype, each divided by its scale, and the scales, (M, 1)."""
    rows = rows.contiguous()
    count, width = rows.shape
    y = torch.empty_like(rows, dtype=dtype)
    scales = torch.empty(count, 1, dtype=torch.float32, device=rows.device)
    block = triton.next_power_of_2(width)
    with launching(rows):
        _rounded[(count,)](
            rows, y, scales, torch.finfo(dtype).max, tiny, WIDTH=width, BLOCK=block, num_warps=1 if block <= 1024 else 4
        )
    return y, scales


@triton.jit
def _rounded(x_ptr, y_ptr, scales_ptr, largest, tiny, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), tiny) / largest
    tl.store(y_ptr + row * WIDTH + column, (x / scale).to(y_ptr.dtype.element_ty), mask=column < WIDTH)
    tl.store(scales_ptr + row, scale)
