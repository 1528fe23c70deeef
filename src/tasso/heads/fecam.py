"""FeCAM: the class whose mean is nearest, each measured with the class's own covariance (Goswami et al., NeurIPS 2023).

    d_c = (x − μ_c)ᵀ C_c⁺ (x − μ_c)

C_c is the covariance of class c, shrunk, then divided by its own variances. The second moments of every class are kept,
0.5 MB for embeddings of 512 numbers.

As in the authors' code for transformers, x has unit length and μ_c is not made unit again. Where all images of a class
are the same, or it has one image, they divide by zero; here C_c is the identity. Sums are kept in float32, and texts
tell learned classes from others.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from tasso.heads.base import Head, Second, from_upper_half

NO_SPREAD = 1e-5  # a smaller share of the second moments is rounding, not variance


class FeCAM(Head):
    """l_c = −½ τ d_c: τ times the cosine, up to a constant, if C_c is the identity and the mean has unit length.

    `alphas` is the shrinkage, here what the authors take for CIFAR100 and CORe50.
    """

    second: ClassVar[Second] = "each"
    alphas: ClassVar[tuple[float, float]] = (1.0, 0.0)

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        self._fitted: dict[int, tuple[Tensor, Tensor]] = {}

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        each = [distances(features, *self._metric(column)) for column in columns.tolist()]
        return -0.5 * self.logit_scale * torch.stack(each, dim=1)

    def _metric(self, column: int) -> tuple[Tensor, Tensor]:
        """μ_c (D,) and C_c⁺ (D, D), computed when a class is first asked for."""
        if column not in self._fitted:
            gram = from_upper_half(self.gram[column].double(), self.width)
            mean, inverse = metric(float(self.counts[column]), self.sums[column].double(), gram, self.alphas)
            self._fitted[column] = mean.float(), inverse.float()
        return self._fitted[column]

    def forget_classifier(self) -> None:
        self._fitted = {}


class StrongFeCAM(FeCAM):
    """With the shrinkage that the authors take for ImageNet-R."""

    alphas: ClassVar[tuple[float, float]] = (10.0, 10.0)


def metric(count: float, total: Tensor, gram: Tensor, alphas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """μ_c (D,) and C_c⁺ (D, D) of a class from the number of its images, s_c (D,) and G_c (D, D)."""
    mean, covariance = class_covariance(count, total, gram)
    if covariance.trace() <= NO_SPREAD * gram.trace() / max(count, 1):
        return mean, torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return mean, torch.linalg.pinv(correlations(shrunk(covariance, *alphas)), hermitian=True)


def class_covariance(count: float, total: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """μ (D,) and Σ (D, D) = (G − n μμᵀ) / (n − 1); see `metric`."""
    mean = total / max(count, 1)
    return mean, (gram - total.outer(mean)) / max(count - 1, 1)


def shrunk(covariance: Tensor, on: float, off: float) -> Tensor:
    """Σ + α₁ · mean(diagonal) · I + α₂ · mean(off-diagonal) · (1 − I) for (D, D); zeros are left out of the second."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    rest = covariance * (1 - eye)
    mean_off = rest.sum() / rest.count_nonzero().clamp_min(1)
    return covariance + on * covariance.diagonal().mean() * eye + off * mean_off * (1 - eye)


def correlations(covariance: Tensor) -> Tensor:
    """Each entry of (D, D) over the square roots of its two diagonal entries."""
    deviations = covariance.diagonal().sqrt()
    return covariance / deviations.outer(deviations)


def distances(features: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """(x − μ)ᵀ C⁺ (x − μ), (N,), of features (N, D), a mean (D,) and C⁺ (D, D)."""
    away = features - mean
    return ((away @ inverse) * away).sum(-1)
