"""Experts of one block, as functions of tensors: how they are drawn, chosen and mixed.

Expert e maps x to up[e]ᵀ·relu(down[e]·x + down_bias[e]) + up_bias[e]. The experts of a block are stacked: together they
are one wide expert, in which those that a sample did not choose have share zero.
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


def choose_experts(first: Tensor, gate: Tensor, noise: Tensor | None, top: int) -> Tensor:
    """Share (B, experts) of each expert in each sample: softmax over the `top` best, exactly zero for all others.

    Args:
        first: token 0 of each sample (B, width), which decides for all its tokens.
        gate: (width, experts) for all samples, or one such matrix per sample (B, width, experts).
        noise: like `gate`: how uncertain the choice is while a task is learned; None: it is certain.
        top: how many experts a sample goes through.
    """
    # bfloat16 has too few digits to tell logits apart, and this is a small product.
    with torch.autocast(first.device.type, enabled=False):
        row = first.to(gate.dtype)[:, None]
        logits = (row @ gate).squeeze(1)
        if noise is not None:
            deviation = F.softplus((row @ noise).squeeze(1)) + NOISE_FLOOR
            logits = logits + torch.randn_like(logits) * deviation
        chosen = logits.topk(top, sorted=False).indices
        refusal = torch.full_like(logits, -math.inf).scatter(1, chosen, 0.0)
        # The code has a load-balance loss too, but never adds it to what is minimised; so there is none here.
        return (logits + refusal).softmax(-1)


def mix_experts(tokens: Tensor, weights: Mapping[str, Tensor], shares: Tensor, dropout: float = 0.0) -> Tensor:
    """Output of the experts for tokens (B, length, width), weighted by their shares (B, experts).

    All experts are computed for all tokens, which adds experts · hidden / (6 · width) to the arithmetic of a block,
    22 % for 16 experts of 64 at width 768. Gathering the weights of the chosen ones for each sample would need less,
    but more memory traffic and kernels, and their gradients would have to be added up again.
    """
    samples, length, width = tokens.shape
    inner = F.relu(F.linear(tokens, weights["down"].view(-1, width), weights["down_bias"].flatten()))
    shares = shares.to(inner.dtype)
    inner = F.dropout(inner, dropout).view(samples, length, *weights["down_bias"].shape) * shares[:, None, :, None]
    return inner.flatten(2) @ weights["up"].view(-1, width) + (shares @ weights["up_bias"])[:, None]


def most_chosen(counts: Tensor, number: int) -> Tensor:
    """Indices of the experts chosen most often; ties go to the lower index; none that was never chosen."""
    order = counts.argsort(descending=True, stable=True)[:number]
    return order[counts[order] > 0]
