"""The orthonormal projector: U spans the task's subspace, U = orthonormal(A) for a free matrix A."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Orthonormalisation = Literal["auto", "qr", "cholesky"]


def orthonormal(A: Tensor, how: Orthonormalisation = "auto", fix_signs: bool = True) -> Tensor:
    """Orthonormal columns (D, r) that span the columns of A (D, r), r ≤ D, differentiable in A.

    `qr` is the reduced QR decomposition; with `fix_signs` each column is turned so that R has a positive diagonal,
    which makes the decomposition unique. `cholesky` computes that same matrix from AᵀA = LLᵀ as A·L⁻ᵀ: matrix
    products only, but the condition number of A enters squared. `auto` is `cholesky` on a GPU, where
    reflections wait for one another, and `qr` elsewhere.
    """
    if how == "cholesky" or (how == "auto" and A.is_cuda):
        L = torch.linalg.cholesky_ex(A.mT @ A).L  # unlike cholesky, it does not wait for the device to check
        transposed: Tensor = torch.linalg.solve_triangular(L, A.mT, upper=False)
        return transposed.mT
    Q: Tensor
    Q, R = torch.linalg.qr(A, mode="reduced")
    if not fix_signs:
        return Q
    return Q * torch.where(R.diagonal().detach() < 0, -1.0, 1.0).to(Q.dtype)


def principal_basis(vectors: Tensor, drawn: Tensor) -> Tensor:
    """Orthonormal columns (D, r) that span as much of the vectors (N, D) as r columns can.

    First come their right singular vectors, the largest singular value first, as far as the vectors are linearly
    independent. If these are fewer than r, the remaining columns are those of `drawn` (D, r), less what the earlier
    ones span. Computed in float64, so that every device gives the same result.
    """
    exact, filling = vectors.double(), drawn.double()
    _, values, rows = torch.linalg.svd(exact, full_matrices=False)
    # Embeddings are float32: singular values below their rounding are noise.
    independent = int((values > values.max() * max(exact.shape) * torch.finfo(torch.float32).eps).sum())
    main = rows[: min(independent, drawn.shape[1])].mT
    columns = orthonormal(torch.cat([main, filling[:, main.shape[1] :]], dim=1))
    return columns.to(drawn.dtype)


def energy_rank(vectors: Tensor, share: float) -> int:
    """The least rank r < D of a subspace that holds this share of the energy Σ‖v‖² of the vectors (N, D)."""
    energy = torch.linalg.svdvals(vectors.double()).square()
    below = int((energy.cumsum(0) < share * energy.sum()).sum())
    return min(below + 1, vectors.shape[1] - 1)


def subspace_coordinates(features: Tensor, U: Tensor) -> Tensor:
    """Coordinates Uᵀf (B, r) of features (B, D) in the subspace: lengths and angles of the projection UUᵀf."""
    return features @ U


def orthogonal_component(features: Tensor, U: Tensor) -> Tensor:
    """The rest f − UUᵀf (B, D) of features (B, D) outside the subspace."""
    return features - (features @ U) @ U.mT
