"""One pass over a task's training images, in the evaluation view, for a head: sums, and a few images to choose by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.images import Pixels
from tasso.errors import ModelError
from tasso.heads.base import Moments
from tasso.heads.inference import HeadInference
from tasso.models.inference import Embedded

MOST_HELD_OUT = 2000  # images of a task that a head chooses its weights on
TOGETHER = 1024  # images whose second moments are one product: each is added to a matrix of D × D numbers
MOST_PAIRS = 500  # images of a set that a head follows the model by

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Collected:
    """What one pass over a task's images gives.

    Attributes:
        moments: sums over all images.
        rest: sums over all but the held-out ones; None where nothing is chosen.
        held_out: embedded images to choose on, and their columns, (N,).
    """

    moments: Moments
    rest: Moments | None
    held_out: tuple[Embedded, Tensor]


def collect(
    inference: HeadInference,
    pixels: Pixels,
    labels: Indices,
    columns: Tensor,
    on_progress: Callable[[int], Any] = lambda count: None,
) -> Collected:
    """Embed a task's images with the model as it is now. Nothing that grows with their number is kept.

    Args:
        inference: of the model.
        labels: class of each image within its task, (N,).
        columns: the head's column of each class of the task, (C',).
    """
    head, clip = inference.head, inference.clip
    moments = head.no_moments()
    chosen = held_out(labels) if head.chooses else np.empty(0, np.int64)
    kept = Kept(inference, chosen)
    every = columns[torch.from_numpy(labels).to(columns.device)]
    waiting: list[tuple[Tensor, Tensor]] = []

    def add() -> None:
        if waiting:
            features, of_them = zip(*waiting, strict=True)
            moments.add(torch.cat(features), torch.cat(of_them))
            waiting.clear()

    for indices, batch in inference.batches(pixels):
        if batch is not None:
            waiting.append((_finite(head.features(batch)), every[torch.from_numpy(indices).to(every.device)]))
            kept.take(indices, batch)
            if sum(len(labels) for _, labels in waiting) >= TOGETHER:
                add()
        on_progress(len(indices))
    add()
    clip.distributed.all_reduce_sum(moments.tensors())
    kept.share()
    held_labels = every[torch.from_numpy(chosen).to(every.device)]
    rest = None
    if head.chooses:
        rest = head.no_moments()
        rest.include(moments)
        rest.add(head.features(kept.images), held_labels, sign=-1)
    return Collected(moments, rest, (kept.images, held_labels))


def embed_some(inference: HeadInference, pixels: Pixels) -> Embedded:
    """As many images of a set, such as the reference images, as a head follows the model by."""
    chosen = spread(np.arange(len(pixels)), MOST_PAIRS)
    inference.clip.model.eval()
    step = inference.shared_batch or 64
    parts = [inference.embed(pixels.eval_view(chosen[i : i + step])) for i in range(0, len(chosen), step)]
    return Embedded.cat(parts)


class Kept:
    """Some images of a set as they were embedded, the same on every rank."""

    def __init__(self, inference: HeadInference, indices: Indices) -> None:
        self.inference, self.indices = inference, indices
        self.images = inference.empty(len(indices)).map(torch.zeros_like)

    def take(self, indices: Indices, batch: Embedded) -> None:
        """Keep those that are asked for."""
        _, mine, theirs = np.intersect1d(self.indices, indices, assume_unique=True, return_indices=True)
        for kept, embedded in zip(vars(self.images).values(), vars(batch).values(), strict=True):
            if kept is not None:
                device = kept.device
                kept[torch.from_numpy(mine).to(device)] = embedded[torch.from_numpy(theirs).to(device)]

    def share(self) -> None:
        """Get those that other ranks have embedded."""
        present = [tensor for tensor in vars(self.images).values() if tensor is not None]
        self.inference.clip.distributed.all_reduce_sum(present)


def held_out(labels: Indices) -> Indices:
    """Every fifth image of each class, or every second one where a class has fewer than five; at most so many."""
    if not len(labels):
        return np.empty(0, np.int64)
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[order]]
    share = 5 if counts[counts > 0].min() >= 5 else 2
    return spread(np.flatnonzero(rank % share == share - 1), MOST_HELD_OUT)


def spread(indices: Indices, most: int) -> Indices:
    """At most so many of these, evenly spread."""
    if len(indices) <= most:
        return indices
    return indices[np.linspace(0, len(indices) - 1, most).round().astype(np.int64)]


def _finite(features: Tensor) -> Tensor:
    if not bool(torch.isfinite(features).all()):
        raise ModelError("the features of training images contain inf or NaN; are the model's weights damaged?")
    return features
