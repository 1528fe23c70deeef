"""An image is compared with texts and, if it is one of the learned classes, by the head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tasso.heads.base import Head, class_key
from tasso.models.classifier import LinearHead
from tasso.models.inference import Embedded, Inference, Templates
from tasso.models.tokens import LastTokens


class HeadInference(Inference):
    """Texts decide between learned and other classes, the head among the learned.

    With cosines cos(x, t_c) and the head's scores l_c, a learned class has max over learned(cos) + (l_c − max l) / τ:
    the best learned class has the highest cosine of all learned ones. So whether an image shows a class that was not
    learned is decided exactly as without a head.
    """

    def __init__(self, base: Inference, head: Head, tokens: LastTokens, merge_names: bool) -> None:
        super().__init__(base.clip)
        self.base, self.head, self.tokens, self.merge_names = base, head, tokens, merge_names

    @property
    def shared_batch(self) -> int | None:
        return self.base.shared_batch

    def embed(self, pixels: Tensor) -> Embedded:
        if not (self.head.deep and self.tokens.width):
            return self.base.embed(pixels)
        with self.tokens.read() as found:
            images = self.base.embed(pixels)
        return dataclasses.replace(images, tokens=self.tokens.pool(found[-1]))

    def empty(self, count: int) -> Embedded:
        images = self.base.empty(count)
        if not (self.head.deep and self.tokens.width):
            return images
        return dataclasses.replace(images, tokens=images.features.new_empty(count, self.tokens.width))

    def class_embeddings(self, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        return self.base.class_embeddings(names, templates)

    def texts(self, names: Sequence[str], templates: Sequence[str]) -> Tensor | None:
        return self.base.texts(names, templates)

    def scores(
        self,
        images: Embedded,
        groups: Sequence[Sequence[str]],
        templates: Templates,
        tasks: Sequence[str] = (),
    ) -> Tensor:
        scores = self.base.scores(images, groups, templates, tasks)
        columns = self.columns(groups, tasks).to(scores.device)
        learned = columns >= 0
        if not learned.any():
            return scores
        texts = scores[:, learned]
        logits = self.head.logits(self.head.features(images), columns[learned], texts, scores[:, ~learned])
        among = (logits - logits.max(-1, keepdim=True).values) / self.clip.logit_scale
        scores[:, learned] = texts.max(-1, keepdim=True).values + among
        return scores

    def linear(self, groups: Sequence[Sequence[str]], tasks: Sequence[str] = ()) -> LinearHead | None:
        columns = self.columns(groups, tasks).to(self.clip.device)
        learned = columns >= 0
        if not learned.any():
            return None
        found, head = self.head.linear(), self.head
        weight = torch.where(learned, found.weight[:, columns], 0.0)
        bias = found.bias[columns].masked_fill(~learned, -torch.inf)
        tokens = self.tokens if head.deep and self.tokens.width else None
        return LinearHead(
            type(head).__name__, weight, bias, found.text, found.temperature, head.features, head.projection, tokens
        )

    def columns(self, groups: Sequence[Sequence[str]], tasks: Sequence[str] = ()) -> Tensor:
        """The head's column of each class of all groups, (C,); −1 for classes of which it has seen no image."""
        named = zip(tasks or [""] * len(groups), groups, strict=True)
        keys = [class_key(task, name, self.merge_names) for task, names in named for name in names]
        seen = self.head.counts.tolist()
        found = [self.head.classes.get(key, -1) for key in keys]
        return torch.tensor([column if column >= 0 and seen[column] else -1 for column in found])
