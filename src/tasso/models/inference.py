"""How images are compared with classes. Plain CLIP here; a method that needs more brings its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasso.data.images import Pixels
from tasso.models.clip import Clip

EMBED_BATCH = 256

Templates = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Embedded:
    """Images as a model sees them."""

    features: Tensor
    # For models that treat images differently: which way each one went. None: there is only one way.
    routes: Tensor | None = None

    @staticmethod
    def join(parts: Sequence[Embedded]) -> Embedded:
        """All of them in one."""
        routes = [part.routes for part in parts if part.routes is not None]
        return Embedded(torch.cat([part.features for part in parts]), torch.cat(routes) if routes else None)


def for_each(groups: Sequence[Sequence[str]], templates: Templates) -> list[tuple[str, ...]]:
    """The prompts of each group, if they are not the same for all."""
    shared = [template for template in templates if isinstance(template, str)]
    if shared or not templates:
        return [tuple(shared)] * len(groups)
    return [tuple(own) for own in templates]


class Inference:
    """The cosine of an image's embedding with that of each class text."""

    def __init__(self, clip: Clip) -> None:
        self.clip = clip

    @property
    def shares_decisions(self) -> bool:
        """Does what it says about an image depend on the others of its batch?"""
        return False

    def embed(self, pixels: Tensor) -> Embedded:
        """Features (B, D) of normalised pixels (B, 3, H, W) by the model as it is now; no gradient."""
        self.clip.model.eval()
        with torch.no_grad():
            return Embedded(self.clip.encode_images(pixels))

    def embed_all(
        self, pixels: Pixels, batch_size: int = EMBED_BATCH, on_progress: Callable[[int], Any] = lambda count: None
    ) -> Embedded:
        """All images of a set in the evaluation view, batch by batch."""
        distributed = self.clip.distributed
        parts = []
        for number, start in enumerate(range(0, len(pixels), batch_size)):
            indices = np.arange(start, min(start + batch_size, len(pixels)))
            mine = number % distributed.world_size == distributed.rank
            parts.append(self.embed(pixels.eval_view(indices)) if mine else self.blank(len(indices)))
            on_progress(len(indices))
        for number, part in enumerate(parts):  # processes take batches in turn and tell each other
            distributed.broadcast(part.features, number % distributed.world_size)
            if part.routes is not None:
                distributed.broadcast(part.routes, number % distributed.world_size)
        return Embedded.join(parts)

    def blank(self, count: int) -> Embedded:
        """Room for so many images that another process embeds."""
        return Embedded(torch.empty(count, self.clip.dim, device=self.clip.device))

    def scores(self, images: Embedded, groups: Sequence[Sequence[str]], templates: Templates) -> Tensor:
        """Scores (B, C) of B images for the C classes of all groups; the larger, the likelier.

        Args:
            images: features (B, D).
            groups: class names, task by task; the columns are in their order.
            templates: prompts that the names are put into, the same for all or a list of them for each group.
        """
        each = zip(groups, for_each(groups, templates), strict=True)
        texts = torch.cat([self.clip.class_embeddings(names, prompts) for names, prompts in each])
        return images.features @ texts.mT

    def texts(self, names: Sequence[str], templates: Sequence[str]) -> Tensor | None:
        """Unit vectors (C, D) of classes in the space of the images; None where a class has more than one."""
        return self.clip.class_embeddings(names, templates)
