"""What every head is: sums over the features of learned classes, and a classifier computed from them.

Notation: N images, C classes learned so far, D features φ(x) of an image. A head keeps the number of images of each
class n (C,), the sums of their features s (C, D) and, if it needs them, the second moments G = Σ φφᵀ (D, D): no image
and no feature. Sums add up over tasks, processes and later deliveries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tasso.errors import ModelError
from tasso.models.inference import Embedded

RANDOM_SEED = 1102  # of the random features, the same in every run: sums of two runs may be compared


class ClassKey(NamedTuple):
    """A class that a head knows. `task` is empty where classes of the same name in several tasks are one."""

    task: str
    name: str


def class_key(task: str, name: str, merge_names: bool) -> ClassKey:
    """The key of a task's class."""
    return ClassKey("" if merge_names else task, name)


class Linear(NamedTuple):
    """Scores α (φ W + b + a cos(x, t)) of the head's C classes: W (D, C), b (C,), a and α."""

    weight: Tensor
    bias: Tensor
    text: float = 0.0
    temperature: float = 1.0


class Moments(nn.Module):
    """n, s and G of some images, in float64 while they are summed up."""

    def __init__(self, classes: int, width: int, second: bool, device: torch.device) -> None:
        super().__init__()

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.counts, self.sums = zeros(classes), zeros(classes, width)
        self.gram = zeros(width, width) if second else zeros(0, 0)

    def add(self, features: Tensor, labels: Tensor, sign: int = 1) -> None:
        """Add images, φ (N, D) of the classes `labels` (N,); with sign −1, take them away."""
        self.counts += sign * torch.bincount(labels, minlength=len(self.counts))
        self.sums.index_add_(0, labels, sign * features.double())
        if len(self.gram):
            self.gram += sign * (features.mT @ features).double()

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All of them, for sums over processes."""
        return self.counts, self.sums, self.gram


class Head(nn.Module):
    """Sums of what was learned, and a classifier from them.

    Attributes:
        deep: does it see the tokens of the tower's last block, beside the embedding?
        random: how many random features it adds.
        second: does it need second moments?
        moves: do its sums follow the model when that learns another task?
        chooses: does it choose how it weighs things on held-out images?
        classes: the column of each learned class.
        counts, sums, gram: the sums, in float32; of the symmetric G the upper half, row by row.
    """

    deep: ClassVar[bool] = False
    random: ClassVar[int] = 0
    second: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    chooses: ClassVar[bool] = False

    counts: Tensor
    sums: Tensor
    gram: Tensor
    projection: Tensor

    def __init__(self, width: int, logit_scale: float) -> None:
        """`width`: of what it sees of an image, less random features; `logit_scale`: the model's factor on cosines."""
        super().__init__()
        self.classes: dict[ClassKey, int] = {}
        self.logit_scale, self.width = logit_scale, width + self.random
        self.register_buffer("counts", torch.zeros(0))
        self.register_buffer("sums", torch.zeros(0, self.width))
        self.register_buffer("gram", torch.zeros(self.width * (self.width + 1) // 2 if self.second else 0))
        self.register_buffer("projection", _projection(width, self.random), persistent=False)

    # -- features ----------------------------------------------------------------------------------------------

    def features(self, images: Embedded) -> Tensor:
        """φ(x), (N, D): the embedding and, if it is deep, pooled tokens, each of unit length and all together, too;
        then random features relu(x R) / √m."""
        parts = [images.features]
        if self.deep and images.tokens is not None:
            parts.append(images.tokens)
        joined = torch.cat(parts, dim=-1)
        x: Tensor = joined / joined.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        if not self.random:
            return x
        expanded = (x @ self.projection).relu() / math.sqrt(self.random)
        return torch.cat([x, expanded], dim=-1)

    # -- sums --------------------------------------------------------------------------------------------------

    def add_classes(self, keys: Sequence[ClassKey]) -> Tensor:
        """The columns (C',) of these classes, new ones among them."""
        for key in keys:
            self.classes.setdefault(key, len(self.classes))
        grown = len(self.classes) - len(self.counts)
        self.counts = torch.cat([self.counts, self.counts.new_zeros(grown)])
        self.sums = torch.cat([self.sums, self.sums.new_zeros(grown, self.width)])
        return torch.tensor([self.classes[key] for key in keys], device=self.counts.device)

    def add(self, moments: Moments) -> None:
        """Add the sums of some images."""
        self.counts += moments.counts.float()
        self.sums = (self.sums.double() + moments.sums).float()
        if self.second:
            upper = torch.triu_indices(self.width, self.width, device=self.gram.device)
            self.gram = (self.gram.double() + moments.gram[upper[0], upper[1]]).float()
        self.forget_classifier()

    def moments(self) -> Moments:
        """n, s and G in full, in float64."""
        found = Moments(len(self.counts), self.width, self.second, self.counts.device)
        found.counts, found.sums = self.counts.double(), self.sums.double()
        if self.second:
            upper = torch.triu_indices(self.width, self.width, device=self.gram.device)
            found.gram[upper[0], upper[1]] = self.gram.double()
            found.gram = found.gram + found.gram.triu(1).mT
        return found

    # -- the classifier ----------------------------------------------------------------------------------------

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor) -> Tensor:
        """Scores (N, K) for a softmax among classes.

        Args:
            features: φ of the images, (N, D).
            columns: which classes, (K,); a class may come several times, with other texts.
            cosines: of the images with the texts of these classes, (N, K).
        """
        raise NotImplementedError

    def linear(self) -> Linear:
        """The same scores as numbers, if they are linear in the features and the cosines: what an export needs."""
        raise ModelError(
            f"export: the scores of {type(self).__name__} are not linear in its features, and no format has others; "
            "use the run through tasso.load"
        )

    def forget_classifier(self) -> None:
        """Called when the sums have changed."""


def _projection(width: int, count: int) -> Tensor:
    """R (P, m), standard normal. NumPy keeps this generator's stream as it is for ever, on every machine."""
    drawn = np.random.RandomState(RANDOM_SEED).standard_normal((width, count)) if count else np.zeros((width, 0))
    return torch.from_numpy(drawn).float()
