"""The orthonormal projector: U spans the task's subspace, U = orthonormal(A) for a free matrix A."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Orthonormalisation = Literal["auto", "qr", "cholesky"]


def orthonormal(A: Tensor, how: Orthonormalisation = "auto", fix_signs: bool = True) -> Tensor:
    """Orthonormal columns that span the columns of A (d × r, r ≤ d), differentiable in A.

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


def spanning(vectors: Tensor, drawn: Tensor) -> Tensor:
    """Orthonormal columns (d × r) that span as much of the vectors (n × d) as r columns can.

    First come their right singular vectors, the largest singular value first, as far as the vectors are linearly
    independent. If these are fewer than r, the columns of `drawn` (d × r) in the places that are left fill up, less
    what the earlier ones span. Computed in float64, so that it does not matter who computes it.
    """
    exact, filling = vectors.double(), drawn.double()
    _, values, rows = torch.linalg.svd(exact, full_matrices=False)
    # Embeddings are float32: what is smaller than their rounding is no direction of its own.
    independent = int((values > values.max() * max(exact.shape) * torch.finfo(torch.float32).eps).sum())
    kept = rows[: min(independent, drawn.shape[1])].mT
    columns = orthonormal(torch.cat([kept, filling[:, kept.shape[1] :]], dim=1))
    return columns.to(drawn.dtype)


def inside(features: Tensor, U: Tensor) -> Tensor:
    """Coordinates Uᵀf in the subspace (n × r): the same lengths and angles as the projection UUᵀf."""
    return features @ U


def outside(features: Tensor, U: Tensor) -> Tensor:
    """What the subspace leaves out: f − UUᵀf."""
    return features - (features @ U) @ U.mT
