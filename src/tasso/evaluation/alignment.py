"""How far images lie from the texts of their classes: the distances 1 − cosine, summed up small enough to be kept."""

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
    """Distances of images, and of the classes' mean images, from the texts of their classes.

    Args:
        features: unit vectors, one row an image.
        texts: unit vectors, one row a class.
        labels: the row of `texts` that each image belongs to.
    """
    own = texts[labels]
    distances = 1 - (features.double() * own.double()).sum(-1)
    return {**_summary(distances.cpu().numpy()), "prototypes": _prototypes(features, texts, labels)}


def _summary(distances: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Exact quantiles and mean; and the counts of all bins from the first to the last that is not empty."""
    counts, _ = np.histogram(np.clip(distances, *RANGE), BINS, RANGE)  # rounding may leave the range by a hair
    used = counts.nonzero()[0]
    first, last = int(used[0]), int(used[-1])
    return {
        "count": len(distances),
        "mean": _rounded(distances.mean()),
        "quantiles": [_rounded(value) for value in np.quantile(distances, QUANTILES)],
        "first_bin": first,
        "counts": counts[first : last + 1].tolist(),
    }


def _prototypes(features: Tensor, texts: Tensor, labels: Tensor) -> list[float | None]:
    """The paper's version: one distance a class, between its text and the mean of its images. None: no image."""
    sums = torch.zeros(texts.shape, dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.double())
    cosines = torch.nn.functional.cosine_similarity(sums, texts.double(), dim=-1)
    seen = torch.bincount(labels, minlength=len(texts)) > 0
    return [
        _rounded(1 - cosine) if there else None for cosine, there in zip(cosines.tolist(), seen.tolist(), strict=True)
    ]


def _rounded(value: float) -> float:
    return round(float(value), DIGITS) + 0.0  # no minus sign on a zero
