"""The class whose mean is nearest, as in iCaRL and SimpleCIL: cosines with the means of all training images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.heads.base import Head, Linear


class NearestMean(Head):
    """l_c = τ cos(x, s_c); the direction of a sum is that of the mean."""

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        return self.logit_scale * features @ F.normalize(self.sums[columns], dim=-1).mT

    def linear(self) -> Linear:
        return Linear(self.logit_scale * F.normalize(self.sums, dim=-1).mT, torch.zeros_like(self.counts))
