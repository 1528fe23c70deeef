"""Self-attention.

A program has a block of queries and goes through the keys, or has a block of keys and goes through the queries, a part
at a time. What is left over of whole parts is padded to a power of two, so any length fits. It comes first: its reads
wait together with those of the block.
"""

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

HEAD_WIDTHS = (16, 32, 64)
BLOCK = 64  # queries or keys of a program
PART = 32  # of the keys or queries that it goes through
WARPS, STAGES = 4, 3  # stages of Triton's pipeline


def attention(q: Tensor, kv: Tensor | None, bias: Tensor, heads: int, causal: bool = False) -> Tensor:
    """Self-attention of tokens, from their queries, keys and values.

    Args:
        q: (B, Q, D), queries of the first Q tokens; without `kv` all three of all tokens, (B, L, 3 D).
        kv: keys and values, (B, L, 2 D).
        bias: (3 D,). It has been added already, and is given for its gradient, a sum over what is there anyway.
        causal: tokens see themselves and those before them; without `kv`.

    Returns:
        (B, Q, D), or (B, L, D).
    """
    y: Tensor = _Attention.apply(q, kv, bias, heads, causal)
    return y


def fits_attention(width: int, heads: int) -> bool:
    """Can `attention` do this?"""
    return width % heads == 0 and width // heads in HEAD_WIDTHS


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, bias: Tensor, heads: int, causal: bool) -> Tensor:
        q, width = q.contiguous(), len(bias) // 3
        ctx.kind = heads, width, causal
        kv = None if kv is None else kv.contiguous()
        k = q[..., width:] if kv is None else kv
        (batch, queries, _), keys = q.shape, k.shape[1]
        y = torch.empty(batch, queries, width, dtype=q.dtype, device=q.device)
        norms = torch.empty(batch, heads, queries, dtype=torch.float32, device=q.device)
        with launching(q):
            _launch(_attention, queries, keys, ctx.kind, q=q, k=k, y=y, norms=norms)
        ctx.save_for_backward(q, kv, y, norms)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, y, norms = ctx.saved_tensors
        (batch, queries, width), kind = y.shape, ctx.kind
        d_y, d_q, d_kv = d_y.contiguous(), torch.empty_like(q), None if kv is None else torch.empty_like(kv)
        k, d_k = (q[..., width:], d_q[..., width:]) if d_kv is None else (kv, d_kv)
        keys, alongs = k.shape[1], torch.empty_like(norms)
        programs = batch * triton.cdiv(queries, BLOCK)
        parts = torch.empty(programs, 3 * width, dtype=torch.float32, device=q.device)
        given = {"q": q, "k": k, "norms": norms, "d_y": d_y, "alongs": alongs}
        with launching(q):
            _launch(_of_queries, queries, keys, kind, **given, y=y, d_q=d_q, parts=parts)
            _launch(_of_keys, keys, queries, kind, **given, d_k=d_k)
        return d_q, d_kv, column_sums(parts) if ctx.needs_input_grad[2] else None, None, None


def _launch(kernel: Any, own: int, others: int, kind: tuple[int, int, bool], **tensors: Tensor) -> None:
    """One program for each block of queries or keys (`own`), which goes through the `others`.

    Args:
        kind: heads, width of the model, and whether it is causal.
    """
    (heads, width, causal), q, k = kind, tensors["q"], tensors["k"]
    block, whole = min(BLOCK, _padded(own)), (others - 1) // PART * PART
    packed = q.shape[2] == 3 * width  # rows are as long as shapes say: of one token, a stride may be any
    kernel[(triton.cdiv(own, block) * len(q) * heads,)](
        **{f"{name}_ptr": tensor for name, tensor in tensors.items()},
        queries=q.shape[1], keys=k.shape[1], scale=1 / math.sqrt(width // heads),
        HEADS=heads, D=width // heads, BLOCK=block, PART=PART, HAS_PARTS=whole > 0, REST=_padded(others - whole),
        STAGES=STAGES, Q_ROW=q.shape[2], K_ROW=q.shape[2] if packed else k.shape[2], CAUSAL=causal,
        num_warps=WARPS,
    )  # fmt: skip


def _padded(length: int) -> int:
    """The side of a factor of a product: a power of two, at least 16."""
    return max(16, 1 << (length - 1).bit_length())


@triton.jit(do_not_specialize=["queries", "keys"])
def _attention(
    q_ptr, k_ptr, y_ptr, norms_ptr, queries, keys, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, HAS_PARTS: tl.constexpr,
    REST: tl.constexpr, STAGES: tl.constexpr, Q_ROW: tl.constexpr, K_ROW: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head of one sample; `norms` are base-2 logarithms of the sums of exponentials."""
    WIDTH: tl.constexpr = HEADS * D
    pair, block = tl.program_id(0) // tl.cdiv(queries, BLOCK), tl.program_id(0) % tl.cdiv(queries, BLOCK)
    sample, column = (pair // HEADS).to(tl.int64), pair % HEADS * D + tl.arange(0, D)
    m = block * BLOCK + tl.arange(0, BLOCK)
    is_query = (m < queries)[:, None]
    q = tl.load(q_ptr + (sample * queries + m)[:, None] * Q_ROW + column[None, :], mask=is_query, other=0.0)
    k_rows = k_ptr + sample * keys * K_ROW + column[None, :]
    y = tl.zeros((BLOCK, D), tl.float32)
    largest = tl.full((BLOCK,), -1e30, tl.float32)  # not infinite: the first part may have nothing that a query sees
    total = tl.zeros((BLOCK,), tl.float32)
    factor = scale * 1.4426950408889634
    whole = (keys - 1) // PART * PART
    rest = whole + tl.arange(0, REST)
    y, largest, total = _part(q, k_rows, m, rest, keys, y, largest, total, factor, WIDTH, K_ROW, True, CAUSAL)
    if HAS_PARTS:
        for first in tl.range(0, whole, PART, num_stages=STAGES):
            n = first + tl.arange(0, PART)
            y, largest, total = _part(q, k_rows, m, n, keys, y, largest, total, factor, WIDTH, K_ROW, False, CAUSAL)
    y_place = (sample * queries + m)[:, None] * WIDTH + column[None, :]
    tl.store(y_ptr + y_place, (y / total[:, None]).to(y_ptr.dtype.element_ty), mask=is_query)
    tl.store(norms_ptr + pair * queries + m, largest * factor + tl.log2(total), mask=m < queries)


@triton.jit
def _part(
    q, k_rows, m, n, keys, y, largest, total, factor,
    WIDTH: tl.constexpr, K_ROW: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Sums of values (M, D), largest scores and sums of exponentials (M,), with a part of the keys more."""
    mask = (n < keys)[:, None] if MASKED else None
    k = tl.load(k_rows + n[:, None] * K_ROW, mask=mask)
    v = tl.load(k_rows + n[:, None] * K_ROW + WIDTH, mask=mask, other=0.0 if MASKED else None)
    s = tl.dot(q, tl.trans(k))
    if MASKED:
        s = tl.where((n < keys)[None, :], s, -float("inf"))
    if CAUSAL:
        s = tl.where(n[None, :] <= m[:, None], s, -float("inf"))
    higher = tl.maximum(largest, tl.max(s, 1))
    p = tl.exp2(s * factor - (higher * factor)[:, None])
    shrink = tl.exp2((largest - higher) * factor)
    return tl.dot(p.to(v.dtype), v, y * shrink[:, None]), higher, total * shrink + tl.sum(p, 1)


@triton.jit(do_not_specialize=["queries", "keys"])
def _of_queries(
    q_ptr, k_ptr, y_ptr, norms_ptr, d_y_ptr, alongs_ptr, d_q_ptr, parts_ptr, queries, keys, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, HAS_PARTS: tl.constexpr,
    REST: tl.constexpr, STAGES: tl.constexpr, Q_ROW: tl.constexpr, K_ROW: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries, its part of that of the bias, and what gradients of keys need: y · d_y."""
    WIDTH: tl.constexpr = HEADS * D
    blocks = tl.cdiv(queries, BLOCK)
    pair, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    sample, column = (pair // HEADS).to(tl.int64), pair % HEADS * D + tl.arange(0, D)
    m = block * BLOCK + tl.arange(0, BLOCK)
    is_query = (m < queries)[:, None]
    q_place = (sample * queries + m)[:, None] * Q_ROW + column[None, :]
    y_place = (sample * queries + m)[:, None] * WIDTH + column[None, :]
    q = tl.load(q_ptr + q_place, mask=is_query, other=0.0)
    d_y = tl.load(d_y_ptr + y_place, mask=is_query, other=0.0)
    y = tl.load(y_ptr + y_place, mask=is_query, other=0.0)
    along = tl.sum(y.to(tl.float32) * d_y.to(tl.float32), 1)
    tl.store(alongs_ptr + pair * queries + m, along, mask=m < queries)
    norm = tl.load(norms_ptr + pair * queries + m, mask=m < queries, other=float("inf"))
    k_rows = k_ptr + sample * keys * K_ROW + column[None, :]
    d_q = tl.zeros((BLOCK, D), tl.float32)
    factor = scale * 1.4426950408889634
    whole = (keys - 1) // PART * PART
    rest = whole + tl.arange(0, REST)
    d_q = _part_of_queries(q, d_y, norm, along, k_rows, m, rest, keys, d_q, factor, WIDTH, K_ROW, True, CAUSAL)
    if HAS_PARTS:
        for first in tl.range(0, whole, PART, num_stages=STAGES):
            n = first + tl.arange(0, PART)
            d_q = _part_of_queries(q, d_y, norm, along, k_rows, m, n, keys, d_q, factor, WIDTH, K_ROW, False, CAUSAL)
    d_q *= scale
    tl.store(d_q_ptr + q_place, d_q.to(d_q_ptr.dtype.element_ty), mask=is_query)
    part = parts_ptr + (sample * blocks + block) * (3 * WIDTH) + column
    tl.store(part, tl.sum(d_q, 0))
    tl.store(part + WIDTH, tl.zeros((D,), tl.float32))  # it shifts all scores of a query, which softmax ignores
    tl.store(part + 2 * WIDTH, tl.sum(d_y.to(tl.float32), 0))  # the weights of a query sum to one


@triton.jit
def _part_of_queries(
    q, d_y, norm, along, k_rows, m, n, keys, d_q, factor,
    WIDTH: tl.constexpr, K_ROW: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Gradients of queries (M, D), not scaled, with a part of the keys more."""
    mask = (n < keys)[:, None] if MASKED else None
    k = tl.load(k_rows + n[:, None] * K_ROW, mask=mask, other=0.0 if MASKED else None)
    v = tl.load(k_rows + n[:, None] * K_ROW + WIDTH, mask=mask)
    p = tl.exp2(tl.dot(q, tl.trans(k)) * factor - norm[:, None])
    if CAUSAL:
        p = tl.where(n[None, :] <= m[:, None], p, 0.0)
    d_s = p * (tl.dot(d_y, tl.trans(v)) - along[:, None])
    if MASKED:
        d_s = tl.where((n < keys)[None, :], d_s, 0.0)
    return tl.dot(d_s.to(k.dtype), k, d_q)


@triton.jit(do_not_specialize=["queries", "keys"])
def _of_keys(
    q_ptr, k_ptr, norms_ptr, d_y_ptr, alongs_ptr, d_k_ptr, queries, keys, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, HAS_PARTS: tl.constexpr,
    REST: tl.constexpr, STAGES: tl.constexpr, Q_ROW: tl.constexpr, K_ROW: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and of their values."""
    WIDTH: tl.constexpr = HEADS * D
    pair, block = tl.program_id(0) // tl.cdiv(keys, BLOCK), tl.program_id(0) % tl.cdiv(keys, BLOCK)
    sample, column = (pair // HEADS).to(tl.int64), pair % HEADS * D + tl.arange(0, D)
    n = block * BLOCK + tl.arange(0, BLOCK)
    is_key = (n < keys)[:, None]
    k_place = (sample * keys + n)[:, None] * K_ROW + column[None, :]
    k = tl.load(k_ptr + k_place, mask=is_key, other=0.0)
    v = tl.load(k_ptr + k_place + WIDTH, mask=is_key, other=0.0)
    d_k = tl.zeros((BLOCK, D), tl.float32)
    d_v = tl.zeros((BLOCK, D), tl.float32)
    q_rows = q_ptr + sample * queries * Q_ROW + column[None, :]
    d_y_rows = d_y_ptr + sample * queries * WIDTH + column[None, :]
    norms, alongs = norms_ptr + pair * queries, alongs_ptr + pair * queries
    factor = scale * 1.4426950408889634
    whole = (queries - 1) // PART * PART
    rest = whole + tl.arange(0, REST)
    d_k, d_v = _part_of_keys(
        k, v, q_rows, d_y_rows, norms, alongs, n, rest, queries, d_k, d_v, factor, WIDTH, Q_ROW, True, CAUSAL
    )
    if HAS_PARTS:
        for first in tl.range(0, whole, PART, num_stages=STAGES):
            m = first + tl.arange(0, PART)
            d_k, d_v = _part_of_keys(
                k, v, q_rows, d_y_rows, norms, alongs, n, m, queries, d_k, d_v, factor, WIDTH, Q_ROW, False, CAUSAL
            )
    tl.store(d_k_ptr + k_place, (d_k * scale).to(d_k_ptr.dtype.element_ty), mask=is_key)
    tl.store(d_k_ptr + k_place + WIDTH, d_v.to(d_k_ptr.dtype.element_ty), mask=is_key)


@triton.jit
def _part_of_keys(
    k, v, q_rows, d_y_rows, norms, alongs, n, m, queries, d_k, d_v, factor,
    WIDTH: tl.constexpr, Q_ROW: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Gradients of keys, not scaled, and of values, (N, D) each, with a part of the queries more."""
    mask = (m < queries)[:, None] if MASKED else None
    q = tl.load(q_rows + m[:, None] * Q_ROW, mask=mask, other=0.0 if MASKED else None)
    d_y = tl.load(d_y_rows + m[:, None] * WIDTH, mask=mask, other=0.0 if MASKED else None)
    norm = tl.load(norms + m, mask=(m < queries) if MASKED else None, other=float("inf") if MASKED else None)
    along = tl.load(alongs + m, mask=(m < queries) if MASKED else None, other=0.0 if MASKED else None)
    p = tl.exp2(tl.dot(k, tl.trans(q)) * factor - norm[None, :])  # zero behind the last query
    if CAUSAL:
        p = tl.where(n[:, None] <= m[None, :], p, 0.0)
    d_v = tl.dot(p.to(d_y.dtype), d_y, d_v)
    d_s = p * (tl.dot(v, tl.trans(d_y)) - along[None, :])
    return tl.dot(d_s.to(k.dtype), q, d_k), d_v
