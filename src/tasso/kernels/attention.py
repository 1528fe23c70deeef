"""Self-attention."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasso.kernels import launching
from tasso.kernels.sums import column_sums

LONGEST = 256  # tokens: the backward pass has all keys of a head at once
HEAD_WIDTHS = (16, 32, 64)  # 128 does not fit into a multiprocessor


def attention(packed: Tensor, bias: Tensor, heads: int, causal: bool = False) -> Tensor:
    """Self-attention of tokens, (B, L, D), from queries, keys and values (B, L, 3 D).

    Their bias (3 D,) has been added already. It is given for its gradient, which is a sum over what the backward pass
    computes anyway.
    """
    y: Tensor = _Attention.apply(packed, bias, heads, causal)
    return y


def fits_attention(length: int, width: int, heads: int) -> bool:
    """Can `attention` do this?"""
    return length <= LONGEST and width % heads == 0 and width // heads in HEAD_WIDTHS


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, bias: Tensor, heads: int, causal: bool) -> Tensor:
        packed = packed.contiguous()
        batch, length, width = packed.shape[0], packed.shape[1], packed.shape[2] // 3
        y = torch.empty(batch, length, width, dtype=packed.dtype, device=packed.device)
        norms = torch.empty(batch, heads, length, dtype=torch.float32, device=packed.device)
        queries, keys = (max(16, min(most, triton.next_power_of_2(length))) for most in (64, 32))
        with launching(packed):
            _attention[(triton.cdiv(length, queries) * batch * heads,)](
                packed, y, norms, length, 1 / math.sqrt(width // heads),
                HEADS=heads, D=width // heads, KEYS=keys, QUERIES=queries, CAUSAL=causal, num_warps=4,
            )  # fmt: skip
        ctx.save_for_backward(packed, y, norms)
        ctx.heads, ctx.causal = heads, causal
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        packed, y, norms = ctx.saved_tensors
        batch, length, width = y.shape
        keys = max(16, triton.next_power_of_2(length))
        d_packed = torch.empty_like(packed)
        parts = torch.empty(batch, 3 * width, dtype=torch.float32, device=y.device)
        with launching(packed):
            _attention_backward[(batch * ctx.heads,)](
                packed, y, norms, d_y.contiguous(), d_packed, parts, length, 1 / math.sqrt(width // ctx.heads),
                HEADS=ctx.heads, D=width // ctx.heads, KEYS=keys, QUERIES=min(keys, 32), CAUSAL=ctx.causal,
                num_warps=8 if keys > 64 else 4,
            )  # fmt: skip
        return d_packed, column_sums(parts) if ctx.needs_input_grad[1] else None, None, None


@triton.jit(do_not_specialize=["length"])
def _attention(
    packed_ptr, y_ptr, norms_ptr, length, scale,
    HEADS: tl.constexpr, D: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head of one sample; `norms` are base-2 logarithms of the sums of exponentials."""
    blocks = tl.cdiv(length, QUERIES)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    sample, head = pair // HEADS, pair % HEADS
    WIDTH: tl.constexpr = HEADS * D
    column = head * D + tl.arange(0, D)
    m = block * QUERIES + tl.arange(0, QUERIES)
    first_token = sample.to(tl.int64) * length
    rows = packed_ptr + first_token * (3 * WIDTH)
    q = tl.load(rows + m[:, None] * (3 * WIDTH) + column[None, :], mask=(m < length)[:, None], other=0.0)
    y = tl.zeros((QUERIES, D), tl.float32)
    largest = tl.full((QUERIES,), -float("inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(length, block * QUERIES + QUERIES)
    factor = scale * 1.4426950408889634
    for first in tl.range(0, end, KEYS, num_stages=3):
        n = first + tl.arange(0, KEYS)
        place = rows + n[:, None] * (3 * WIDTH) + column[None, :]
        k = tl.load(place + WIDTH, mask=(n < length)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k))
        seen = (n < length)[None, :]
        if CAUSAL:
            seen = seen & (n[None, :] <= m[:, None])
        s = tl.where(seen, s, -float("inf"))
        higher = tl.maximum(largest, tl.max(s, 1))
        p = tl.exp2(s * factor - (higher * factor)[:, None])
        shrink = tl.exp2((largest - higher) * factor)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(place + 2 * WIDTH, mask=(n < length)[:, None], other=0.0)
        y = tl.dot(p.to(v.dtype), v, y * shrink[:, None])
        largest = higher
    y = y / total[:, None]
    tl.store(
        y_ptr + (first_token + m)[:, None] * WIDTH + column[None, :],
        y.to(y_ptr.dtype.element_ty),
        mask=(m < length)[:, None],
    )
    tl.store(norms_ptr + pair * length + m, largest * factor + tl.log2(total), mask=m < length)


@triton.jit(do_not_specialize=["length"])
def _attention_backward(
    packed_ptr, y_ptr, norms_ptr, d_y_ptr, d_packed_ptr, parts_ptr, length, scale,
    HEADS: tl.constexpr, D: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One head of one sample: all keys at once, one block of queries after the other.

    Scores are transposed, (keys, queries): they then are factors of the next products as they are.
    """
    sample, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    WIDTH: tl.constexpr = HEADS * D
    column = head * D + tl.arange(0, D)
    n = tl.arange(0, KEYS)
    first_token = sample.to(tl.int64) * length
    rows = packed_ptr + first_token * (3 * WIDTH)
    d_rows = d_packed_ptr + first_token * (3 * WIDTH)
    is_key = (n < length)[:, None]
    k_place = n[:, None] * (3 * WIDTH) + WIDTH + column[None, :]
    k = tl.load(rows + k_place, mask=is_key, other=0.0)
    v = tl.load(rows + k_place + WIDTH, mask=is_key, other=0.0)
    d_k = tl.zeros((KEYS, D), tl.float32)
    d_v = tl.zeros((KEYS, D), tl.float32)
    d_q_sum = tl.zeros((D,), tl.float32)
    factor = scale * 1.4426950408889634
    for first in tl.range(0, length, QUERIES, num_stages=2):
        m = first + tl.arange(0, QUERIES)
        is_query = (m < length)[:, None]
        q_place = m[:, None] * (3 * WIDTH) + column[None, :]
        y_place = (first_token + m)[:, None] * WIDTH + column[None, :]
        q = tl.load(rows + q_place, mask=is_query, other=0.0)
        d_y = tl.load(d_y_ptr + y_place, mask=is_query, other=0.0)
        y = tl.load(y_ptr + y_place, mask=is_query, other=0.0)
        norm = tl.load(norms_ptr + tl.program_id(0) * length + m, mask=m < length, other=0.0)
        along = tl.sum(y.to(tl.float32) * d_y.to(tl.float32), 1)
        seen = is_key & (m < length)[None, :]
        if CAUSAL:
            seen = seen & (n[:, None] <= m[None, :])
        s = tl.dot(k, tl.trans(q))
        p = tl.where(seen, tl.exp2(s * factor - norm[None, :]), 0.0)
        d_v = tl.dot(p.to(d_y.dtype), d_y, d_v)
        d_p = tl.dot(v, tl.trans(d_y))
        d_s = (p * (d_p - along[None, :])).to(k.dtype)
        d_k = tl.dot(d_s, q, d_k)
        d_q = tl.dot(tl.trans(d_s), k) * scale
        tl.store(d_rows + q_place, d_q.to(d_packed_ptr.dtype.element_ty), mask=is_query)
        d_q_sum += tl.sum(d_q, 0)
    d_k *= scale
    tl.store(d_rows + k_place, d_k.to(d_packed_ptr.dtype.element_ty), mask=is_key)
    tl.store(d_rows + k_place + WIDTH, d_v.to(d_packed_ptr.dtype.element_ty), mask=is_key)
    part = parts_ptr + sample * 3 * WIDTH + column
    tl.store(part, d_q_sum)
    tl.store(part + WIDTH, tl.sum(d_k, 0))
    tl.store(part + 2 * WIDTH, tl.sum(d_v, 0))
