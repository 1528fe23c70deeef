"""Accuracy rows: each test set is embedded once per model and scored twice, against its own classes (MTIL) and
against the classes of all tasks (MCIL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasso.clip import Clip
from tasso.images import Pixels
from tasso.tasks import Task


@dataclass(frozen=True)
class Rows:
    """Percent correct on every task of the sequence, in its order."""

    mtil: list[float]
    mcil: list[float]


def embed(clip: Clip, pixels: Pixels, batch_size: int, on_progress: Callable[[int], Any] = lambda n: None) -> Tensor:
    """Unit embeddings of all pictures of a set, as evaluation sees them."""
    clip.model.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, len(pixels), batch_size):
            indices = np.arange(start, min(start + batch_size, len(pixels)))
            parts.append(clip.encode_images(pixels.eval_view(indices)))
            on_progress(len(indices))
    return torch.cat(parts)


def percent_correct(embeddings: Tensor, class_embeddings: Tensor, labels: Tensor) -> float:
    """How often the nearest class text is the right one, in percent."""
    predicted = (embeddings @ class_embeddings.mT).argmax(-1)
    return 100.0 * int((predicted == labels).sum()) / len(labels)


def accuracy_rows(
    clip: Clip,
    tasks: Sequence[Task],
    pixels: Sequence[Pixels],
    templates: Sequence[str],
    batch_size: int,
    on_progress: Callable[[int], Any] = lambda n: None,
) -> Rows:
    """Score the model on every task in both settings."""
    own = [clip.class_embeddings(task.class_names, templates) for task in tasks]
    everything = torch.cat(own)
    rows, offset = Rows([], []), 0
    for task, pictures, classes in zip(tasks, pixels, own, strict=True):
        embeddings = embed(clip, pictures, batch_size, on_progress)
        labels = torch.from_numpy(task.test.labels).to(embeddings.device)
        rows.mtil.append(percent_correct(embeddings, classes, labels))
        rows.mcil.append(percent_correct(embeddings, everything, labels + offset))
        offset += len(classes)
    return rows
