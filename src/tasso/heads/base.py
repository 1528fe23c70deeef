"""What every head is: sums over the features of learned classes, and a classifier computed from them.

Notation: N images, C classes learned so far, D features φ(x) of an image. A head keeps the number of images of each
class n (C,), the sums of their features s (C, D) and, if it needs them, the second moments G = Σ φφᵀ of all images
(D, D) or of each class (C, D, D): no image and no feature. Sums add up over tasks, processes and later deliveries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.errors import ModelError
from tasso.models.inference import Embedded

RANDOM_SEED = 1102  # of the random features, the same in every run: sums of two runs may be compared

Second = Literal["none", "shared", "each"]  # second moments: none, of all images together, of each class


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
    """n, s and G of some images, in float64 while they are summed up. G of each class is packed: see `upper_half`."""

    def __init__(self, classes: int, width: int, second: Second, device: torch.device) -> None:
        super().__init__()

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.second = second
        self.counts, self.sums = zeros(classes), zeros(classes, width)
        shapes = {"none": (0, 0), "shared": (width, width), "each": (classes, width * (width + 1) // 2)}
        self.gram = zeros(*shapes[second])

    def add(self, features: Tensor, labels: Tensor, sign: int = 1) -> None:
        """Add images, φ (N, D) of the classes `labels` (N,); with sign −1, take them away."""
        if not len(labels):
            return
        # Products, because index_add_ adds up in no fixed order on a GPU.
        present, rows = torch.unique(labels, return_inverse=True)
        of_class = F.one_hot(rows, len(present)).double()
        self.counts[present] += sign * of_class.sum(0)
        self.sums[present] += sign * of_class.mT @ features.double()
        if self.second == "shared":
            self.gram += sign * (features.mT @ features).double()
        elif self.second == "each":
            for column in torch.unique(labels).tolist():
                own = features[labels == column]
                self.gram[column] += sign * upper_half(own.mT @ own).double()

    def include(self, other: Moments) -> None:
        """Add the sums of other images."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine += theirs

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All of them, for sums over processes."""
        return self.counts, self.sums, self.gram


class Head(nn.Module):
    """Sums of what was learned, and a classifier from them.

    Attributes:
        deep: does it see the tokens of the tower's last block, beside the embedding?
        random: how many random features it adds.
        second: which second moments it needs.
        moves: do its sums follow the model when that learns another task?
        chooses: does it choose how it weighs things on held-out images?
        classes: the column of each learned class.
        counts, sums, gram: the sums, in float32; of a symmetric G the upper half, row by row.
    """

    deep: ClassVar[bool] = False
    random: ClassVar[int] = 0
    second: ClassVar[Second] = "none"
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
        drawn = self.draw(np.random.RandomState(RANDOM_SEED), width) if self.random else np.zeros((width, 0))
        self.register_buffer("projection", torch.from_numpy(drawn).float(), persistent=False)
        self.logit_scale, self.width = logit_scale, self.expand(torch.zeros(1, width)).shape[-1]
        packed = self.width * (self.width + 1) // 2
        self.register_buffer("counts", torch.zeros(0))
        self.register_buffer("sums", torch.zeros(0, self.width))
        shapes = {"none": (0,), "shared": (packed,), "each": (0, packed)}
        self.register_buffer("gram", torch.zeros(shapes[self.second]))

    # -- features ----------------------------------------------------------------------------------------------

    def features(self, images: Embedded) -> Tensor:
        """φ(x), (N, D), where x is the embedding and, if it is deep, pooled tokens, each of unit length and all
        together, too."""
        parts = [images.features]
        if self.deep and images.tokens is not None:
            parts.append(images.tokens)
        joined = torch.cat(parts, dim=-1)
        return self.expand(joined / joined.norm(dim=-1, keepdim=True).clamp_min(1e-12))

    def expand(self, x: Tensor) -> Tensor:
        """φ (N, D) from x (N, P): x itself and m random features relu(x R) / √m."""
        if not self.random:
            return x
        return torch.cat([x, (x @ self.projection).relu() / math.sqrt(self.random)], dim=-1)

    def draw(self, random: np.random.RandomState, width: int) -> npt.NDArray[np.float64]:
        """R (P, m), standard normal. NumPy keeps this generator's stream as it is for ever, on every machine."""
        return random.standard_normal((width, self.random))

    # -- sums --------------------------------------------------------------------------------------------------

    def add_classes(self, keys: Sequence[ClassKey]) -> Tensor:
        """The columns (C',) of these classes, new ones among them."""
        for key in keys:
            self.classes.setdefault(key, len(self.classes))
        grown = len(self.classes) - len(self.counts)
        self.counts = torch.cat([self.counts, self.counts.new_zeros(grown)])
        self.sums = torch.cat([self.sums, self.sums.new_zeros(grown, self.width)])
        if self.second == "each":
            self.gram = torch.cat([self.gram, self.gram.new_zeros(grown, self.gram.shape[1])])
        return torch.tensor([self.classes[key] for key in keys], device=self.counts.device)

    def add(self, moments: Moments) -> None:
        """Add the sums of some images."""
        self.counts += moments.counts.float()
        self.sums = (self.sums.double() + moments.sums).float()
        if self.second != "none":
            added = upper_half(moments.gram) if self.second == "shared" else moments.gram
            self.gram = (self.gram.double() + added).float()
        self.forget_classifier()

    def no_moments(self) -> Moments:
        """The sums of no image."""
        return Moments(len(self.counts), self.width, self.second, self.counts.device)

    def moments(self) -> Moments:
        """n, s and G, in float64."""
        found = self.no_moments()
        found.counts, found.sums = self.counts.double(), self.sums.double()
        if self.second != "none":
            gram = self.gram.double()
            found.gram = from_upper_half(gram, self.width) if self.second == "shared" else gram
        return found

    # -- following the model -----------------------------------------------------------------------------------

    def choose(self, rest: Moments, features: Tensor, labels: Tensor, cosines: Tensor, trained: bool = False) -> None:
        """Choose how things are weighed, before a task's images are added; only of a head that `chooses`.

        Args:
            rest: sums of the images of this task that are not held out, as the same model embeds them.
            features: φ of the held-out images, (N, D).
            labels: their columns, (N,).
            cosines: with the texts of all learned classes, (N, C).
            trained: whether the model was trained on these images.
        """

    def move(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Let the sums follow the model, which has learned another task; only of a head that `moves`.

        Args:
            pairs: sets of images as the model embedded them before and as it does now, (N, D) each. Every set counts
                the same.
        """

    # -- the classifier ----------------------------------------------------------------------------------------

    def logits(self, features: Tensor, columns: Tensor, cosines: Tensor, others: Tensor) -> Tensor:
        """Scores (N, K) for a softmax among learned classes.

        Args:
            features: φ of the images, (N, D).
            columns: which classes, (K,); a class may come several times, with other texts.
            cosines: of the images with the texts of these classes, (N, K).
            others: the same with the candidates that were not learned, (N, K').
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


def upper_half(matrices: Tensor) -> Tensor:
    """The upper halves (…, D (D + 1) / 2) of symmetric matrices (…, D, D), row by row."""
    rows, columns = torch.triu_indices(*matrices.shape[-2:], device=matrices.device)
    return matrices[..., rows, columns]


def from_upper_half(packed: Tensor, width: int) -> Tensor:
    """The symmetric matrices (…, D, D) with these upper halves."""
    rows, columns = torch.triu_indices(width, width, device=packed.device)
    full = packed.new_zeros(*packed.shape[:-1], width, width)
    full[..., rows, columns] = packed
    return full + full.triu(1).mT
