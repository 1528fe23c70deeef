"""RAIL (Primal): ridge regression on random features, mixed with zero-shot probabilities (Xu et al., NeurIPS 2024).

With h = relu(x R), R (P, m) uniform in ±1/√P, and one-hot Y, the ridge outputs are h W with W = (ΣHᵀH + λI)⁻¹ ΣHᵀY,
λ = 0.1. The authors update W recursively, which gives the same; here it is solved for once. G takes 450 MB of a file,
11 GB of memory while W is solved for: made for a GPU, on a CPU it takes minutes.

An image whose zero-shot argmax is not a learned class keeps its zero-shot probabilities: the route that `HeadInference`
takes, too. One difference remains: here an image that is routed to the head always gets a learned class, there it gets
another one if the ridge outputs of all learned classes are about 0 or negative.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.heads.base import Head, Second
from tasso.heads.ridge import ridge_weight

RIDGE = 0.1  # λ
FUSION = 0.8  # weight of the ridge outputs, where 1 − FUSION is that of the probabilities


class RAIL(Head):
    """l_c = τ times what `fuse` gives for the class."""

    random: ClassVar[int] = 15_000
    second: ClassVar[Second] = "shared"

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        self._weight: Tensor | None = None

    def expand(self, x: Tensor) -> Tensor:
        """h (N, m) alone, not scaled."""
        return (x @ self.projection).relu()

    def draw(self, random: np.random.RandomState, width: int) -> npt.NDArray[np.float64]:
        """R (P, m), uniform in ±1/√P."""
        return random.uniform(-1, 1, (width, self.random)) / math.sqrt(width)

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        if self._weight is None:
            moments = self.moments()
            self._weight = ridge_weight(moments.gram, moments.sums.mT, RIDGE).float()
        zero_shot = self.logit_scale * torch.cat([cosines, others], dim=-1)
        known = len(columns)
        return self.logit_scale * fuse(zero_shot, features @ self._weight[:, columns])[:, :known]

    def forget_classifier(self) -> None:
        self._weight = None


def fuse(zero_shot: Tensor, outputs: Tensor) -> Tensor:
    """The scores (N, C) of the authors: p where the argmax of p is not a learned class, else 0.2 p + 0.8 (ridge
    outputs, zero for the others), with p = softmax(zero-shot logits).

    Args:
        zero_shot: logits of all candidates, (N, C), the learned ones first.
        outputs: of the ridge regression for the K learned ones, (N, K).
    """
    p, known = zero_shot.softmax(-1), outputs.shape[1]
    mixed = (1 - FUSION) * p
    mixed[:, :known] += FUSION * outputs
    return torch.where(routed(zero_shot, known)[:, None], mixed, p)


def routed(zero_shot: Tensor, known: int) -> Tensor:
    """Is the argmax of zero-shot logits (N, C) one of the first `known` classes? (N,)"""
    return zero_shot.argmax(-1) < known
