"""Image–text alignment: distances 1 − cosine between images and the texts of their classes, as histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BINS = 500
RANGE = (0.0, 2.0)
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
DIGITS = 6


def alignment(features: Tensor, texts: Tensor, labels: Tensor) -> dict[str, Any]:
    """Distances of images, and of class prototypes (mean images), from the texts of their classes.

    Args:
        features: unit embeddings of N images, (N, D).
        texts: unit embeddings of C classes, (C, D).
        labels: the class of each image, (N,).
    """
    distances = 1 - (features.double() * texts[labels].double()).sum(-1)
    return {**_summary(distances.cpu().numpy()), "prototypes": _prototypes(features, texts, labels)}


def _summary(distances: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Exact mean and quantiles, and the histogram from the first to the last bin that is not empty."""
    counts, _ = np.histogram(np.clip(distances, *RANGE), BINS, RANGE)  # rounding may exceed the range
    nonempty = counts.nonzero()[0]
    first, last = int(nonempty[0]), int(nonempty[-1])
    return {
        "count": len(distances),
        "mean": _rounded(distances.mean()),
        "quantiles": [_rounded(value) for value in np.quantile(distances, QUANTILES)],
        "first_bin": first,
        "counts": counts[first : last + 1].tolist(),
    }


def _prototypes(features: Tensor, texts: Tensor, labels: Tensor) -> list[float | None]:
    """As in the paper: per class, the distance between its text and the mean of its images. None: no images."""
    sums = torch.zeros(texts.shape, dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.double())
    cosines = torch.nn.functional.cosine_similarity(sums, texts.double(), dim=-1)
    counts = torch.bincount(labels, minlength=len(texts))
    return [
        _rounded(1 - cosine) if count else None for cosine, count in zip(cosines.tolist(), counts.tolist(), strict=True)
    ]


def _rounded(value: float) -> float:
    return round(float(value), DIGITS) + 0.0  # turns -0.0 into 0.0
