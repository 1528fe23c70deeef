"""Ridge regression of one-hot classes on features, from sums: what RanPAC and RAIL have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def ridge_weight(gram: Tensor, cross: Tensor, ridge: float) -> Tensor:
    """W (D, C) = (G + λI)⁻¹ Q.

    Args:
        gram: G = ΣHᵀH, (D, D).
        cross: Q = ΣHᵀY with one-hot Y, (D, C): the transposed sums of each class's features.
        ridge: λ.
    """
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    weight: Tensor = torch.linalg.solve(gram + ridge * eye, cross)
    return weight


def ridge_losses(gram: Tensor, cross: Tensor, hidden: Tensor, targets: Tensor, grid: Sequence[float]) -> Tensor:
    """Mean squared errors (L,) of other images for each λ of a grid, all from one eigendecomposition.

    With G = U diag(e) Uᵀ, HW = (HU) diag(1 / (e + λ)) (UᵀQ).

    Args:
        gram, cross: of the images that W is fitted to; see `ridge_weight`.
        hidden: H of the others, (N, D).
        targets: their one-hot Y, (N, C).
        grid: L values of λ.
    """
    values, vectors = torch.linalg.eigh(gram)
    left, right = hidden @ vectors, vectors.mT @ cross
    fits = (left @ (right / (values.clamp_min(0) + ridge)[:, None]) for ridge in grid)
    return torch.stack([(fit - targets).square().mean() for fit in fits])
