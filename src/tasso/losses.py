"""Losses: pure functions of tensors, no model, no state. Call them outside autocast, in float32 or better."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Distance = Literal["none", "l2", "geodesic"]
Angle = Literal["clamped", "exact"]
Selection = Literal["per_sample", "batch_mean"]

# The authors' constants: vectors shorter than this are not blown up, and cosines stay this far from ±1.
DISTILLATION_EPS = 1e-6
COSINE_MARGIN = 1e-6


def cross_entropy(
    features: Tensor, class_embeddings: Tensor, labels: Tensor, scale: float, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy of scaled cosines between pictures and class texts. Both are made unit vectors here."""
    cosines = F.normalize(features, dim=-1) @ F.normalize(class_embeddings, dim=-1).mT
    return F.cross_entropy(scale * cosines, labels, label_smoothing=label_smoothing)


def geodesic_distance(x: Tensor, y: Tensor, angle: Angle = "clamped") -> Tensor:
    """Mean angle between the rows of x and y.

    `clamped` is the authors' arccosine of a cosine held within ±(1 − 1e-6): below 1.4e-3 rad it is flat, so that
    identical vectors get that value and no gradient. `exact` is 2·atan2(‖x−y‖, ‖x+y‖), right down to zero.
    """
    x, y = F.normalize(x, dim=-1, eps=DISTILLATION_EPS), F.normalize(y, dim=-1, eps=DISTILLATION_EPS)
    if angle == "exact":
        apart, together = torch.linalg.vector_norm(x - y, dim=-1), torch.linalg.vector_norm(x + y, dim=-1)
        return 2 * torch.atan2(apart, together).mean()
    cosines = (x * y).sum(-1).clamp(-1 + COSINE_MARGIN, 1 - COSINE_MARGIN)
    return torch.acos(cosines).mean()


def squared_l2(x: Tensor, y: Tensor) -> Tensor:
    """Mean squared distance between the unit vectors along x and y: 2 − 2·cosine."""
    x, y = F.normalize(x, dim=-1, eps=DISTILLATION_EPS), F.normalize(y, dim=-1, eps=DISTILLATION_EPS)
    return (x - y).square().sum(-1).mean()


def distance(x: Tensor, y: Tensor, kind: Distance, angle: Angle = "clamped") -> Tensor:
    """The distillation distance of that name; `none` is zero."""
    if kind == "none":
        return x.new_zeros(())
    return squared_l2(x, y) if kind == "l2" else geodesic_distance(x, y, angle)


def teacher_preference(previous: Tensor, pretrained: Tensor, sharpness: float, threshold: float) -> Tensor:
    """SnD: how much each reference picture trusts the previous model, 0 … 1, from how far the two teachers are apart.

    A picture on which they differ looks like one of the tasks learned since: there the previous model knows more.
    """
    apart = torch.linalg.vector_norm(pretrained - previous, dim=-1)
    return torch.sigmoid(sharpness * (apart - threshold))


def selected_distances(
    student: Tensor, previous: Tensor, pretrained: Tensor, preference: Tensor, selection: Selection = "per_sample"
) -> tuple[Tensor, Tensor]:
    """SnD: squared distances to the two teachers, weighted by the preference for each of them.

    `per_sample` weighs every picture by its own preference, as the paper means it. `batch_mean` weighs all of them by
    the mean preference: what the authors' code computes, since its two factors broadcast to a B × B matrix.
    """
    to_previous = (student - previous).square().sum(-1)
    to_pretrained = (student - pretrained).square().sum(-1)
    if selection == "batch_mean":
        preference = preference.mean()
    return (preference * to_previous).mean(), ((1 - preference) * to_pretrained).mean()
