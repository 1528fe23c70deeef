"""How images are scored against classes: plain CLIP here; methods that need more subclass `Inference`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.images import Pixels
from tasso.errors import ModelError
from tasso.models.clip import Clip

if TYPE_CHECKING:
    from tasso.models.classifier import LinearHead

EMBED_BATCH, EMBED_SIZE = 256, 224  # so many images of this size
LARGEST_BATCH = 1024
CPU_BATCH = 64

Templates = Sequence[str] | Sequence[Sequence[str]]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Embedded:
    """Embedded images.

    Attributes:
        features: unit embeddings, (N, D).
        routes: for models with several paths (experts), the path that each image took, (N,); None if there is one.
        tokens: what a head sees beside the embedding, (N, P); None if nothing does.
    """

    features: Tensor
    routes: Tensor | None = None
    tokens: Tensor | None = None

    @staticmethod
    def cat(parts: Sequence[Embedded]) -> Embedded:
        """Concatenate batches."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return Embedded(*(None if each[0] is None else torch.cat(each) for each in fields))  # type: ignore[arg-type]

    def map(self, change: Callable[[Tensor], Tensor]) -> Embedded:
        """Another one, each tensor of which is changed."""
        return Embedded(*(None if each is None else change(each) for each in vars(self).values()))  # type: ignore[arg-type]


def templates_per_group(groups: Sequence[Sequence[str]], templates: Templates) -> list[tuple[str, ...]]:
    """The templates of each group of classes, whether they are given once for all or per group."""
    shared = [template for template in templates if isinstance(template, str)]
    if shared or not templates:
        return [tuple(shared)] * len(groups)
    return [tuple(own) for own in templates]


def usual_batch(clip: Clip) -> int:
    """Images per forward pass, where nobody says how many: caches of a CPU hold few, and a GPU has little to do with
    few small ones."""
    if clip.device.type == "cpu":
        return CPU_BATCH
    return min(LARGEST_BATCH, max(1, EMBED_BATCH * EMBED_SIZE**2 // clip.preprocess.size**2))


class Inference:
    """Scores are cosines between image embeddings and class embeddings."""

    def __init__(self, clip: Clip) -> None:
        self.clip = clip

    @property
    def shared_batch(self) -> int | None:
        """How many images share a batch, where the scores of an image depend on the others of its batch; else None."""
        return None

    def embed(self, pixels: Tensor) -> Embedded:
        """Embed normalised pixels (B, 3, H, W), without gradient. The model is in evaluation mode."""
        with torch.no_grad():
            return Embedded(self.clip.encode_images(pixels))

    def batches(self, pixels: Pixels, batch_size: int | None = None) -> Iterator[tuple[Indices, Embedded | None]]:
        """Embed a set in the evaluation view, batch by batch: the images of each, and what they are embedded as.

        Ranks take batches in turn; of those of another rank there is None.
        """
        distributed = self.clip.distributed
        share = math.ceil(len(pixels) / distributed.world_size)  # else one rank might embed a small set alone
        batch_size = batch_size or max(1, min(usual_batch(self.clip), share))
        self.clip.model.eval()  # once: of nano it takes a tenth of the time of a batch on a GPU
        if self.shared_batch:  # whole ones, whatever fits into a forward pass
            batch_size = max(1, batch_size // self.shared_batch) * self.shared_batch
        for number, start in enumerate(range(0, len(pixels), batch_size)):
            indices = np.arange(start, min(start + batch_size, len(pixels)))
            is_own = number % distributed.world_size == distributed.rank
            yield indices, self.embed(pixels.eval_view(indices)) if is_own else None

    def embed_all(
        self,
        pixels: Pixels,
        batch_size: int | None = None,
        on_progress: Callable[[int], Any] = lambda count: None,
    ) -> Embedded:
        """Embed all images of a set in the evaluation view; every rank gets all."""
        distributed, parts = self.clip.distributed, []
        for indices, part in self.batches(pixels, batch_size):
            parts.append(self.empty(len(indices)) if part is None else part)
            on_progress(len(indices))
        for number, part in enumerate(parts):
            part.map(lambda tensor, src=number % distributed.world_size: distributed.broadcast(tensor, src))  # type: ignore[misc]
        return Embedded.cat(parts)

    def empty(self, count: int) -> Embedded:
        """Uninitialised tensors for a batch that another rank embeds."""
        return Embedded(torch.empty(count, self.clip.dim, device=self.clip.device))

    def scores(
        self,
        images: Embedded,
        groups: Sequence[Sequence[str]],
        templates: Templates,
        tasks: Sequence[str] = (),
    ) -> Tensor:
        """Scores of N images for all C classes of all groups.

        Args:
            images: N embedded images.
            groups: class names per task; the columns of the result are in their order.
            templates: prompt templates, one list for all groups or one list per group.
            tasks: the name of each group's task; empty: classes of no task.

        Returns:
            (N, C); the highest score of a row is the prediction.
        """
        pairs = zip(groups, templates_per_group(groups, templates), strict=True)
        texts = torch.cat([self.class_embeddings(names, own) for names, own in pairs])
        return images.features @ texts.mT

    def linear(self, groups: Sequence[Sequence[str]], tasks: Sequence[str] = ()) -> LinearHead | None:
        """For exports: what tells learned classes of these groups apart, instead of their texts; None: nothing does."""
        if type(self).scores is not Inference.scores or type(self).embed is not Inference.embed:
            raise ModelError(
                f"export: {type(self).__name__} classifies in a way that no format has; use the run through tasso.load"
            )
        return None

    def class_embeddings(self, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Unit embeddings of C classes, (C, D). A text-side adapter overrides this, and nothing else."""
        return self.clip.class_embeddings(names, templates)

    def texts(self, names: Sequence[str], templates: Sequence[str]) -> Tensor | None:
        """Unit embeddings of C classes, (C, D), for distances to images; None if a class has more than one."""
        return self.class_embeddings(names, templates)
