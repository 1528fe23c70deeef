"""Experts of one block, as functions of tensors: how they are drawn, chosen and mixed.

Expert e maps x to scale · (up[e]ᵀ·relu(down[e]·x + down_bias[e]) + up_bias[e]). The experts of a block are stacked, so
that those a sample chooses can be gathered at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

NOISE_FLOOR = 0.01  # its authors' code


def expert_shapes(experts: int, hidden: int, width: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a block's expert weights."""
    return {
        "down": (experts, hidden, width),
        "down_bias": (experts, hidden),
        "up": (experts, hidden, width),
        "up_bias": (experts, width),
    }


def draw_experts(experts: int, hidden: int, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh experts, which add nothing yet: Kaiming-uniform with a = √5 on the way down, zeros on the way up (code)."""
    weights = {name: torch.zeros(shape) for name, shape in expert_shapes(experts, hidden, width).items()}
    bound = 1 / math.sqrt(width)  # √(6 / ((1 + a²) · width))
    weights["down"].uniform_(-bound, bound, generator=generator)
    return weights


def choose_experts(first: Tensor, gate: Tensor, noise: Tensor | None, top: int) -> tuple[Tensor, Tensor]:
    """Indices (B, top) of the experts that each sample goes through, and their shares (B, top).

    Args:
        first: token 0 of each sample (B, width), which decides for all its tokens.
        gate: (width, experts) for all samples, or one such matrix per sample (B, width, experts).
        noise: like `gate`: how uncertain the choice is while a task is learned; None: it is certain.
    """
    # bfloat16 has too few digits to tell logits apart, and this is a small product.
    with torch.autocast(first.device.type, enabled=False):
        row = first.to(gate.dtype)[:, None]
        logits = (row @ gate).squeeze(1)
        if noise is not None:
            deviation = F.softplus((row @ noise).squeeze(1)) + NOISE_FLOOR
            logits = logits + torch.randn_like(logits) * deviation
        best = logits.topk(top, dim=-1)
        # The code has a load-balance loss too, but never adds it to what is minimised; so there is none here.
        return best.indices, best.values.softmax(-1)


def one_hot(chosen: Tensor, experts: int) -> Tensor:
    """Which expert an index stands for, (…, experts) from indices (…); nothing is read from the device."""
    return chosen[..., None] == torch.arange(experts, device=chosen.device)


def mix_experts(
    tokens: Tensor, weights: Mapping[str, Tensor], chosen: Tensor, shares: Tensor, scale: float, dropout: float = 0.0
) -> Tensor:
    """Output of the chosen experts for tokens (B, length, width), weighted by their shares (B, top).

    Only chosen experts are computed: their weights are gathered per sample and concatenated to one wider expert. They
    are gathered by a product with zeros and ones, whose gradient is a product too. That of an index adds up the samples
    of an expert in no fixed order on a GPU, so that two runs would differ.
    """
    samples, top = chosen.shape
    experts, hidden, width = weights["down"].shape
    dtype = _compute_dtype(tokens)
    rows = one_hot(chosen.flatten(), experts).to(dtype)

    def gathered(name: str) -> Tensor:
        return rows @ weights[name].to(dtype).flatten(1)

    down, up = (gathered(name).view(samples, top * hidden, width) for name in ("down", "up"))
    inner = F.relu(torch.baddbmm(gathered("down_bias").view(samples, 1, top * hidden), tokens.to(dtype), down.mT))
    inner = F.dropout(inner, dropout) * shares.repeat_interleave(hidden, dim=1)[:, None]
    bias = shares[:, None].to(dtype) @ gathered("up_bias").view(samples, top, width)
    return scale * torch.baddbmm(bias, inner.to(dtype), up)


def most_chosen(counts: Tensor, number: int) -> Tensor:
    """Indices of the experts chosen most often; ties go to the lower index; none that was never chosen."""
    order = counts.argsort(descending=True, stable=True)[:number]
    return order[counts[order] > 0]


def _compute_dtype(tokens: Tensor) -> torch.dtype:
    """Type of the matrix products. Casting before gathering moves fewer bytes than letting autocast do it."""
    device = tokens.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tokens.dtype
