"""Sums over rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasso.kernels import launching

PROGRAMS = 1056  # that share the numbers of a sum: eight per multiprocessor of an H200


def shares(rows: int, tile: int, blocks: int = 1) -> tuple[int, int]:
    """How rows are shared where they are summed: rows of a program, a multiple of those of a tile; programs.

    Args:
        blocks: of columns, each of which has programs of its own.
    """
    each = tile * max(1, triton.cdiv(rows * blocks, tile * PROGRAMS))
    return each, triton.cdiv(rows, each)


def column_sums(parts: Tensor) -> Tensor:
    """Sums (C,) of the columns of parts (P, C), float32, always in the same order."""
    rows, columns = parts.shape
    sums = torch.empty(columns, dtype=torch.float32, device=parts.device)
    with launching(parts):
        _column_sums[(triton.cdiv(columns, 16),)](parts, sums, rows, columns, num_warps=8)
    return sums


@triton.jit(do_not_specialize=["rows"])
def _column_sums(parts_ptr, sums_ptr, rows, columns):
    column = tl.program_id(0) * 16 + tl.arange(0, 16)
    total = tl.zeros((512, 16), tl.float32)
    for first in range(0, rows, 512):
        row = first + tl.arange(0, 512)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(parts_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(sums_ptr + column, tl.sum(total, 0), mask=column < columns)
