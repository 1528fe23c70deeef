"""Losses: pure functions of tensors, no model, no state. Call them outside autocast, in float32 or better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.models.unit import unit

Distance = Literal["none", "l2", "geodesic"]
Angle = Literal["clamped", "exact"]
Selection = Literal["per_sample", "batch_mean"]

# The authors' constants: vectors shorter than this are not blown up, and cosines stay this far from ±1.
DISTILLATION_EPS = 1e-6
COSINE_MARGIN = 1e-6


def cross_entropy(
    features: Tensor, class_embeddings: Tensor, labels: Tensor, scale: float, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy of scaled cosines of features (B, D) with class texts (C, D), both normalised here; labels (B,)."""
    cosines = unit(features) @ unit(class_embeddings).mT
    return F.cross_entropy(scale * cosines, labels, label_smoothing=label_smoothing)


def distances(x: Tensor, y: Tensor, kind: Literal["l2", "geodesic"], angle: Angle = "clamped") -> Tensor:
    """The distillation distance of that name between the rows of x and y, (B, D) each: (B,)."""
    x, y = unit(x, DISTILLATION_EPS), unit(y, DISTILLATION_EPS)
    return squared_l2(x, y) if kind == "l2" else angles(x, y, angle)


def angles(x: Tensor, y: Tensor, angle: Angle = "clamped") -> Tensor:
    """The angles between the rows of x and y (B, D), which have unit length: (B,), in radians.

    `clamped` is the authors' arccosine of a cosine held within ±(1 − 1e-6): below 1.4e-3 rad it is flat, so that
    identical vectors get that value and no gradient. `exact` is 2·atan2(‖x−y‖, ‖x+y‖), right down to zero.
    """
    if angle == "exact":
        apart, together = torch.linalg.vector_norm(x - y, dim=-1), torch.linalg.vector_norm(x + y, dim=-1)
        return 2 * torch.atan2(apart, together)
    cosines = (x * y).sum(-1).clamp(-1 + COSINE_MARGIN, 1 - COSINE_MARGIN)
    return torch.acos(cosines)


def squared_l2(x: Tensor, y: Tensor) -> Tensor:
    """The squared distances between the rows of x and y (B, D): (B,); 2 − 2·cosine if they have unit length."""
    return (x - y).square().sum(-1)


def teacher_preference(previous: Tensor, pretrained: Tensor, sharpness: float, threshold: float) -> Tensor:
    """SnD: weight (B,) of the previous model for each reference image, 0 … 1, from the distance of the two teachers.

    An image on which they differ resembles the tasks learned since: there the previous model is the better teacher.
    """
    apart = torch.linalg.vector_norm(pretrained - previous, dim=-1)
    return torch.sigmoid(sharpness * (apart - threshold))


def selected_distances(
    student: Tensor, previous: Tensor, pretrained: Tensor, preference: Tensor, selection: Selection = "per_sample"
) -> tuple[Tensor, Tensor]:
    """SnD: squared distances to the two teachers (B, D), weighted by the preference (B,) for each of them.

    `per_sample` weighs every image by its own preference, as the paper means it. `batch_mean` weighs all of them by
    the mean preference: what the authors' code computes, since its two factors broadcast to a B × B matrix.
    """
    to_previous = (student - previous).square().sum(-1)
    to_pretrained = (student - pretrained).square().sum(-1)
    if selection == "batch_mean":
        preference = preference.mean()
    return (preference * to_previous).mean(), ((1 - preference) * to_pretrained).mean()


def soft_cross_entropy(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """D(t, s) = T² · mean over rows of the cross-entropy of softmax(s/T) under softmax(t/T); logits (B, N)."""
    targets = F.softmax(teacher / temperature, dim=-1)
    return temperature**2 * F.cross_entropy(student / temperature, targets)


def distillation_both_ways(teacher: Tensor, student: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """D of logits (B, N) over the texts of each image, and over the images of each text (the transposed logits)."""
    forth = soft_cross_entropy(teacher, student, temperature)
    return forth, soft_cross_entropy(teacher.mT, student.mT, temperature)


def matching_targets(prompts: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """GIFT: targets (B, B) of which images and texts belong together, from prompt indices (B,); equal prompts share."""
    same = (prompts[:, None] == prompts[None, :]).to(dtype)
    return same / same.sum(-1, keepdim=True)


def alignment(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """GIFT: cross-entropy of matching images and texts (logits and targets (B, B)), in both directions."""
    forth = F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    return forth + F.cross_entropy(logits.mT, targets, label_smoothing=label_smoothing)


class _PrecomputedGradient(torch.autograd.Function):
    """A value whose gradients with respect to the parameters have been computed."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        scaled = torch._foreach_mul(ctx.gradients, outer[0])
        return None, None, *scaled


def with_gradient(value: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """`value`, whose backward pass returns these gradients instead of computing them again."""
    result: Tensor = _PrecomputedGradient.apply(value.detach(), list(gradients), *parameters)
    return result


def squared_shift(parameters: Sequence[Tensor], anchors: Sequence[Tensor], weight: float) -> Tensor:
    """weight · Σ‖θ − θ₀‖² over all tensors, with its gradient 2 · weight · (θ − θ₀)."""
    with torch.no_grad():
        shifts = torch._foreach_sub(list(parameters), list(anchors))
        value = weight * torch.stack(torch._foreach_norm(shifts)).square().sum()
        torch._foreach_mul_(shifts, 2 * weight)
    return with_gradient(value, parameters, shifts)


def over_rms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Each tensor divided by the root of its mean square; one of zeros stays as it is."""
    norms = torch._foreach_norm(list(tensors))
    rms = list(torch._foreach_div(norms, [tensor.numel() ** 0.5 for tensor in tensors]))
    # Below this, squares have too few digits.
    torch._foreach_clamp_min_(rms, torch.finfo(tensors[0].dtype).tiny ** 0.5)
    return list(torch._foreach_div(list(tensors), rms))


def with_consolidation(
    gradients: Sequence[Tensor], parameters: Sequence[Tensor], anchors: Sequence[Tensor], weight: float
) -> tuple[Tensor, list[Tensor]]:
    """GIFT: weight · Σ F·(θ − θ₀)² over all tensors, F = g²/mean(g²) per tensor: how much a weight matters to a loss.

    Each operation reads all weights, so there are few: with u = g/rms(g), it is weight · ‖u·(θ − θ₀)‖².

    Args:
        gradients: g of that loss.

    Returns:
        the value, and the gradients g + 2 · weight · F·(θ − θ₀) of both together, for constant F.
    """
    with torch.no_grad():
        unit = over_rms(gradients)
        shifts = torch._foreach_sub(list(parameters), list(anchors))
        torch._foreach_mul_(shifts, unit)
        value = weight * torch.stack(torch._foreach_norm(shifts)).square().sum()
        return value, list(torch._foreach_addcmul(list(gradients), shifts, unit, 2 * weight))
