"""What a run classifies with, in plain numbers: all that an export needs beside the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tasso.models.inference import Embedded
from tasso.models.tokens import LastTokens


@dataclass(frozen=True)
class LinearHead:
    """Scores among learned classes, l = α (φ W + b + a cos(x, t)), (N, C).

    Attributes:
        name: of the kind of head.
        weight: W (D, C); zeros for classes that were not learned.
        bias: b (C,); −inf for these.
        text: a.
        temperature: α.
        features: φ (N, D) of embedded images.
        projection: R (P, m), of the random features in φ; m may be 0.
        tokens: what reads the tokens in φ; None where φ has the embedding alone.
    """

    name: str
    weight: Tensor
    bias: Tensor
    text: float
    temperature: float
    features: Callable[[Embedded], Tensor]
    projection: Tensor
    tokens: LastTokens | None


@dataclass(frozen=True)
class Answer:
    """A class that may be predicted.

    Attributes:
        class_name: its name.
        task: its task, or all that share it.
        columns: of the scores; the highest one counts.
    """

    class_name: str
    task: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Classifier:
    """From embedded images to the probabilities of all classes of a run.

    Attributes:
        columns: task and name of each of the C classes.
        answers: the A classes to choose from: fewer than C where tasks share names and these are one class.
        merge_names: are they?
        templates: the prompt templates of each task.
        texts: unit embeddings of the classes, (C, D).
        logit_scale: the model's factor on cosines, τ.
        head: what tells learned classes apart; None: their texts.
    """

    columns: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    merge_names: bool
    templates: Mapping[str, tuple[str, ...]]
    texts: Tensor
    logit_scale: float
    head: LinearHead | None

    @property
    def learned(self) -> Tensor:
        """Which classes the head knows, (C,)."""
        if self.head is None:
            return torch.zeros(len(self.columns), dtype=torch.bool)
        return self.head.bias > -torch.inf

    @property
    def members(self) -> Tensor:
        """The columns of each answer, (A, K); the first one comes again where one has fewer than K."""
        most = max(len(answer.columns) for answer in self.answers)
        return torch.tensor([
            [*answer.columns, *answer.columns[:1] * (most - len(answer.columns))] for answer in self.answers
        ])  # fmt: skip

    def probabilities(self, images: Embedded) -> Tensor:
        """(N, A), as `tasso classify` gives them."""
        cosines = images.features @ self.texts.mT
        logits = self.logit_scale * cosines
        if self.head is not None:
            # As in heads/inference.py: texts decide between learned and other classes, the head among the learned.
            linear = self.head.features(images) @ self.head.weight + self.head.bias
            scores = self.head.temperature * (linear + self.head.text * cosines)
            best = logits.masked_fill(~self.learned, -torch.inf).amax(-1, keepdim=True)
            logits = torch.where(self.learned, best + scores - scores.amax(-1, keepdim=True), logits)
        return logits[:, self.members].amax(-1).softmax(-1)
