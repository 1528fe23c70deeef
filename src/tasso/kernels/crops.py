"""Weights of crops that are resized."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasso.kernels import launching

WIDEST = 1024  # pixels along a side of the stored images: a row of weights is computed at once
SAMPLES = 8  # rows of weights of a program


def resize_weights(spans: Tensor, size: int, source: int, reach: float) -> Tensor:
    """As `data.images.transforms.resize_weights` of spans (4, B), in float16: (B, size, source)."""
    images = spans.shape[1]
    weights = torch.empty(images, size, source, dtype=torch.float16, device=spans.device)
    with launching(spans):
        _weights[(images, triton.cdiv(size, SAMPLES))](
            spans.contiguous(), weights, images, size, source,
            CUBIC=reach == 2.0, ROWS=SAMPLES, BLOCK=triton.next_power_of_2(source), num_warps=4,
        )  # fmt: skip
    return weights


@triton.jit
def _weights(
    spans_ptr, weights_ptr, images, size, source,
    CUBIC: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0)
    start = tl.load(spans_ptr + image).to(tl.float32)
    length = tl.load(spans_ptr + images + image).to(tl.float32)
    whole = tl.load(spans_ptr + 2 * images + image).to(tl.float32)
    offset = tl.load(spans_ptr + 3 * images + image).to(tl.float32)
    sample = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pixel = tl.arange(0, BLOCK)
    scale = length / whole
    centre = start + (sample.to(tl.float32) + offset + 0.5) * scale
    at = pixel.to(tl.float32) + 0.5
    t = tl.abs((at[None, :] - centre[:, None]) / tl.maximum(scale, 1.0))
    if CUBIC:
        near = (1.5 * t - 2.5) * t * t + 1
        far = (((t - 5) * t + 8) * t - 4) * -0.5
        weights = tl.where(t < 1, near, tl.where(t < 2, far, 0.0))
    else:
        weights = tl.maximum(1 - t, 0.0)
    inside = (at >= start) & (at < start + length) & (pixel < source)
    weights = tl.where(inside[None, :], weights, 0.0)
    weights = weights / tl.sum(weights, 1)[:, None]
    place = (image.to(tl.int64) * size + sample[:, None]) * source + pixel[None, :]
    mask = (sample < size)[:, None] & (pixel < source)[None, :]
    tl.store(weights_ptr + place, weights.to(weights_ptr.dtype.element_ty), mask=mask)
