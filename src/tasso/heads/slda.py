"""Deep SLDA: linear discriminant analysis with one covariance for all classes (Hayes and Kanan, CVPRW 2020).

    l_c = xᵀ Λ μ_c − ½ μ_cᵀ Λ μ_c,   Λ = ((1 − ε) Σ + ε I)⁻¹,   ε = 1e-4

Σ is the covariance within classes, shrunk by the OAS rule: the authors' estimate from the first data, here from all
images so far (batch form). From then on they update Σ image by image (streaming form) with the deviation from the mean
of the class *so far*, weighed by the number of all images instead of the class's. That depends on the order, adds the
position of every new class to Σ, and cannot be had from sums.

Here x is the embedding of CLIP at unit length, and texts tell learned classes from others.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from tasso.heads.base import Head, Moments, Second

SHRINKAGE = 1e-4  # ε


class SLDA(Head):
    """See above."""

    second: ClassVar[Second] = "shared"

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        self._fitted: tuple[Tensor, Tensor] | None = None

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        if self._fitted is None:
            moments = self.moments()
            weight, bias = classifier(class_means(moments), covariance(moments))
            self._fitted = weight.float(), bias.float()
        weight, bias = (tensor[..., columns] for tensor in self._fitted)
        return features @ weight + bias

    def forget_classifier(self) -> None:
        self._fitted = None


def class_means(moments: Moments) -> Tensor:
    """μ (C, D); zeros for classes without images."""
    return moments.sums / moments.counts.clamp_min(1)[:, None]


def covariance(moments: Moments) -> Tensor:
    """Σ (D, D) = (1 − ρ) S + ρ m I with S = (G − Σ_c n_c μ_c μ_cᵀ) / n and m = tr(S) / D.

    ρ = min(1, (a + m²) / ((n + 1) (a − m² / D))) with a the mean of the squares of all entries of S (OAS).
    """
    n, width = float(moments.counts.sum()), moments.sums.shape[1]
    s = (moments.gram - class_means(moments).mT @ moments.sums) / max(n, 1)
    m, a = s.diagonal().mean(), s.square().mean()
    below = (n + 1) * (a - m * m / width)
    rho = min(1.0, float((a + m * m) / below)) if below > 0 else 1.0
    return (1 - rho) * s + rho * m * torch.eye(width, dtype=s.dtype, device=s.device)


def classifier(means: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (D, C) and bias (C,) from μ (C, D) and Σ (D, D)."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    weight = torch.linalg.solve((1 - SHRINKAGE) * covariance + SHRINKAGE * eye, means.mT)
    return weight, -0.5 * (means * weight.mT).sum(1)
