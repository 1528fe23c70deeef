"""RanPAC: ridge regression on random features, with λ chosen anew in every task (McDonnell et al., NeurIPS 2023).

With h = relu(x R), R (P, m) standard normal, and one-hot Y, the scores are h W with W = (ΣHᵀH + λI)⁻¹ ΣHᵀY. G is 200 MB
in a checkpoint, and each task needs an eigendecomposition of 10,000 × 10,000, many minutes of a CPU.

As in the authors' code, λ is fitted and chosen on the current task alone, and then regularises the sums of all tasks.
Unlike it, x is the embedding of CLIP at unit length; held out is every fifth image of each class, up to 2000, instead
of the last fifth in random order; sums are kept in float32; texts tell learned classes from others.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.heads.base import Head, Moments, Second
from tasso.heads.ridge import ridge_losses, ridge_weight

GRID = tuple(10.0**power for power in range(-8, 9))
USUAL = 100.0  # λ where no image can be held out


class RanPAC(Head):
    """l_c = τ h w_c. `ridge` is λ, (), in float64."""

    random: ClassVar[int] = 10_000
    second: ClassVar[Second] = "shared"
    chooses: ClassVar[bool] = True

    ridge: Tensor

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        self.register_buffer("ridge", torch.tensor(USUAL, dtype=torch.float64))
        self._weight: Tensor | None = None

    def expand(self, x: Tensor) -> Tensor:
        """h (N, m) alone, not scaled."""
        return (x @ self.projection).relu()

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        if self._weight is None:
            moments = self.moments()
            self._weight = ridge_weight(moments.gram, moments.sums.mT, float(self.ridge)).float()
        return self.logit_scale * features @ self._weight[:, columns]

    def forget_classifier(self) -> None:
        self._weight = None

    def choose(self, rest: Moments, features: Tensor, labels: Tensor, cosines: Tensor, trained: bool = False) -> None:
        """λ with the least mean squared error of held-out images. Classes of other tasks only scale it."""
        if not len(labels):
            return
        targets = F.one_hot(labels, len(rest.counts)).double()
        losses = ridge_losses(rest.gram, rest.sums.mT, features.double(), targets, GRID)
        self.ridge.fill_(GRID[int(losses.argmin())])
        self.forget_classifier()
