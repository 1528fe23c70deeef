"""Linear discriminant analysis on the embedding, the tokens of the last block and random features.

Every class c has a mean μ_c, all share one covariance Σ within classes. With the texts t_c, the score of a class is

    l_c = α (φᵀ Σ_s⁻¹ μ_c − ½ μ_cᵀ Σ_s⁻¹ μ_c + a cos(x, t_c)),   Σ_s = (1 − s) Σ + s diag(Σ)

The shrinkage s, the weight of the texts a and the temperature α are chosen on held-out training images (`choose`), or
are the usual ones where the model was trained on these images.
When the model learns another task, the sums follow it (`move`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.heads.base import Head, Linear, Moments, Second, upper_half

SHRINKAGES = (0.02, 0.1, 0.3)
TEXT_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # in units of the model's own factor on cosines
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
USUAL = (1, 4, 2)  # their indices where nothing can be chosen; chosen on validation images (results/README.md)
ENOUGH = 20  # a task with so many held-out images counts half as much as one with very many
LOSS_SHARE = 0.1  # of the cross-entropy, beside the share of errors
PRIOR = 5.0  # the variances count as if so many images had been seen with those of all classes together
STRENGTH = 10.0  # of the ridge that keeps a map near the identity, in mean eigenvalues


@dataclass(frozen=True)
class Weights:
    """How the parts of the score are weighed: s, a and α of the formula above."""

    shrinkage: float
    text: float
    temperature: float


class LDA(Head):
    """See above.

    Attributes:
        errors: share of held-out images that are classified wrongly with each s and a, (S, A); a sum over tasks.
        losses: their cross-entropy with each s, a and α, (S, A, T); a sum over tasks.
    """

    deep: ClassVar[bool] = True
    random: ClassVar[int] = 2000
    second: ClassVar[Second] = "shared"
    moves: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    errors: Tensor
    losses: Tensor

    def __init__(self, width: int, logit_scale: float) -> None:
        super().__init__(width, logit_scale)
        shape = len(SHRINKAGES), len(TEXT_WEIGHTS), len(TEMPERATURES)
        self.register_buffer("errors", torch.zeros(shape[:2], dtype=torch.float64))
        self.register_buffer("losses", torch.zeros(shape, dtype=torch.float64))
        self._fitted: tuple[Tensor, Tensor] | None = None

    @property
    def weights(self) -> Weights:
        """s and a with the fewest errors so far, and the α with which they have the least cross-entropy.

        The cross-entropy counts a little for s and a, too: few images are held out of a small task.
        """
        s, a, t = USUAL
        if self.losses.any():
            tried = self.errors + LOSS_SHARE * self.losses.min(-1).values
            s, a = (int(index) for index in torch.unravel_index(tried.argmin(), tried.shape))
            t = int(self.losses[s, a].argmin())
        return Weights(SHRINKAGES[s], TEXT_WEIGHTS[a] * self.logit_scale, TEMPERATURES[t])

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
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

    def choose(self, rest: Moments, features: Tensor, labels: Tensor, cosines: Tensor, trained: bool = False) -> None:
        """Add the errors and the cross-entropy of held-out images.

        Nothing is chosen where the model was trained on them: its texts are too good there. Then `USUAL` holds.
        """
        if trained:
            return
        together = self.moments()
        together.include(rest)
        known = together.counts > 0
        if not len(labels) or not bool(known[labels].all()):
            return
        targets = (known.cumsum(0) - 1)[labels]
        counts = len(labels) / (len(labels) + ENOUGH)
        for s, shrinkage in enumerate(SHRINKAGES):
            weight, bias = discriminant(together, shrinkage, torch.float32)
            scores = (features @ weight + bias)[:, known]
            for a, text in enumerate(TEXT_WEIGHTS):
                logits = scores + text * self.logit_scale * cosines[:, known]
                self.errors[s, a] += counts * (logits.argmax(-1) != targets).double().mean()
                for t, temperature in enumerate(TEMPERATURES):
                    self.losses[s, a, t] += counts * F.cross_entropy(temperature * logits, targets)
        self.forget_classifier()

    def move(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Let the sums follow the model, by a linear map of features that stays near the identity."""
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
        self.gram = upper_half(gram)
        self.forget_classifier()


def discriminant(moments: Moments, shrinkage: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Weight (D, C) and bias (C,) of linear discriminant analysis; classes without images get zeros and −inf.

    `dtype`: of the solution; the covariance is a difference of large numbers, and always computed in float64.
    """
    n, known = moments.counts, moments.counts > 0
    means = moments.sums / n.clamp_min(1)[:, None]
    images, classes = float(n.sum()), int(known.sum())
    within = moments.gram - means.mT @ moments.sums
    total = moments.gram.diagonal() - moments.sums.sum(0).square() / max(images, 1)
    freedom = images - classes
    variances = (within.diagonal().clamp_min(0) + PRIOR * total.clamp_min(0) / max(images, 1)) / (freedom + PRIOR)
    variances = variances + 1e-3 * variances.mean() + 1e-12
    covariance = (1 - shrinkage) * within / max(freedom, 1) + shrinkage * variances.diag()
    energy = float(moments.gram.diagonal().mean()) / max(images, 1)
    means = means.to(dtype)
    weight = torch.cholesky_solve(means.mT, positive_factor(covariance.to(dtype), energy))
    bias = -0.5 * (means * weight.mT).sum(1)
    return weight, bias.masked_fill(~known, -torch.inf)


def positive_factor(covariance: Tensor, energy: float) -> Tensor:
    """The Cholesky factor (D, D) of a covariance. Where images of a class hardly differ, it is made of rounding errors:
    then that of one with more on its diagonal, at first a millionth of the features' mean square `energy`."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(covariance)
    for power in range(-6, 1):
        if failed:
            factor, failed = torch.linalg.cholesky_ex(covariance + 10.0**power * energy * eye)
    return factor
