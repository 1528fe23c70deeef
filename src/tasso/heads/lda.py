"""Linear discriminant analysis on the embedding, the tokens of the last block and random features.

Every class c has a mean μ_c, all share one covariance Σ within classes. With the texts t_c, the score of a class is

    l_c = α (φᵀ Σ_s⁻¹ μ_c − ½ μ_cᵀ Σ_s⁻¹ μ_c + a cos(x, t_c)),   Σ_s = (1 − s) Σ + s diag(Σ)

The shrinkage s, the weight of the texts a and the temperature α are chosen on held-out training images (`choose`).
When the model learns another task, the sums follow it (`move`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.heads.base import Head, Linear, Moments

SHRINKAGES = (0.02, 0.1, 0.3)
TEXT_WEIGHTS = (0.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0)
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
USUAL = (1, 3, 3)  # their indices where no image can be held out
ENOUGH = 20  # a task with so many held-out images counts half as much as one with very many
PRIOR = 5.0  # the variances count as if so many images had been seen with those of all classes together
STRENGTH = 10.0  # of the ridge that keeps a map near the identity, in mean eigenvalues


@dataclass(frozen=True)
class Weights:
    """How the parts of the score are weighed: s, a and α of the formula above."""

    shrinkage: float
    text: float
    temperature: float


class LDA(Head):
    """See above. `trials` has the summed cross-entropy of held-out images for each s, a and α, (S, A, T)."""

    deep: ClassVar[bool] = True
    random: ClassVar[int] = 2000
    second: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    trials: Tensor

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        shape = len(SHRINKAGES), len(TEXT_WEIGHTS), len(TEMPERATURES)
        self.register_buffer("trials", torch.zeros(shape, dtype=torch.float64))
        self._fitted: tuple[Tensor, Tensor] | None = None

    @property
    def weights(self) -> Weights:
        """Those with the least cross-entropy so far."""
        s, a, t = USUAL
        if self.trials.any():
            s, a, t = (int(index) for index in torch.unravel_index(self.trials.argmin(), self.trials.shape))
        return Weights(SHRINKAGES[s], TEXT_WEIGHTS[a], TEMPERATURES[t])

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor) -> Tensor:
        weight, bias = (tensor[..., columns] for tensor in self._fit())
        return self.weights.temperature * (features @ weight + bias + self.weights.text * cosines)

    def linear(self) -> Linear:
        return Linear(*self._fit(), self.weights.text, self.weights.temperature)

    def _fit(self) -> tuple[Tensor, Tensor]:
        if self._fitted is None:
            weight, bias = discriminant(self.moments(), self.weights.shrinkage)
            # What all classes have in common does not count in a softmax, and float32 would round by its size.
            known = bias > -torch.inf
            weight, bias = weight - weight[:, known].mean(1, keepdim=True), bias - bias[known].mean()
            self._fitted = (weight * known).float(), bias.float()
        return self._fitted

    def forget_classifier(self) -> None:
        self._fitted = None

    def choose(self, rest: Moments, features: Tensor, labels: Tensor, cosines: Tensor) -> None:
        """Add the cross-entropy of held-out images to the trials.

        Args:
            rest: sums of the other images of this task, as the same model embeds them.
            features: φ of the held-out images, (N, D).
            labels: their columns, (N,).
            cosines: with the texts of all learned classes, (N, C).
        """
        together = self.moments()
        for mine, others in zip(together.tensors(), rest.tensors(), strict=True):
            mine += others
        known = together.counts > 0
        if not len(labels) or not bool(known[labels].all()):
            return
        columns = known.cumsum(0) - 1
        found = torch.zeros_like(self.trials)
        for s, shrinkage in enumerate(SHRINKAGES):
            weight, bias = discriminant(together, shrinkage)
            scores = (features @ weight.float() + bias.float())[:, known]
            for (a, text), (t, temperature) in product(enumerate(TEXT_WEIGHTS), enumerate(TEMPERATURES)):
                logits = temperature * (scores + text * cosines[:, known])
                found[s, a, t] = F.cross_entropy(logits, columns[labels])
        self.trials += found * len(labels) / (len(labels) + ENOUGH)
        self.forget_classifier()

    def move(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Let the sums follow the model, by a linear map of features that stays near the identity.

        Args:
            pairs: sets of images as the model embedded them before and as it does now, (N, D) each. Every set counts
                the same.
        """
        shape = [(len(old) * len(pairs)) ** -0.5 for old, _ in pairs]
        old = torch.cat([scale * before for scale, (before, _) in zip(shape, pairs, strict=True)]).double()
        change = torch.cat([scale * (now - before) for scale, (before, now) in zip(shape, pairs, strict=True)]).double()
        if not change.any():
            return
        # φ → φ + φ B with B = Aᵀ (A Aᵀ + λ I)⁻¹ Δ, the ridge regression of the change Δ on the old features A.
        ridge = STRENGTH * old.square().sum() / self.width
        inner = old @ old.mT + ridge * torch.eye(len(old), dtype=old.dtype, device=old.device)
        left, right = old.mT.float(), torch.linalg.solve(inner, change).float()  # B = left @ right
        self.sums = self.sums + (self.sums @ left) @ right
        gram = self.moments().gram.float()
        part = gram @ left
        gram = gram + part @ right + (part @ right).mT + right.mT @ (left.mT @ part) @ right
        upper = torch.triu_indices(self.width, self.width, device=gram.device)
        self.gram = gram[upper[0], upper[1]]
        self.forget_classifier()


def discriminant(moments: Moments, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weight (D, C) and bias (C,) of linear discriminant analysis; classes without images get zeros and −inf."""
    n, known = moments.counts, moments.counts > 0
    means = moments.sums / n.clamp_min(1)[:, None]
    images, classes = float(n.sum()), int(known.sum())
    within = moments.gram - means.mT @ moments.sums
    total = moments.gram.diagonal() - moments.sums.sum(0).square() / max(images, 1)
    freedom = images - classes
    variances = (within.diagonal().clamp_min(0) + PRIOR * total.clamp_min(0) / max(images, 1)) / (freedom + PRIOR)
    variances = variances + 1e-3 * variances.mean() + 1e-12
    covariance = (1 - shrinkage) * within / max(freedom, 1) + shrinkage * variances.diag()
    weight = torch.cholesky_solve(means.mT, torch.linalg.cholesky(covariance))
    bias = -0.5 * (means * weight.mT).sum(1)
    return weight, bias.masked_fill(~known, -torch.inf)
