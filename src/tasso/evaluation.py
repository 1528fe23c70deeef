"""Accuracy rows: each test set is embedded once per model and scored twice, against its own classes (MTIL) and
against the classes of all tasks (MCIL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasso.images import Pixels
from tasso.inference import Inference
from tasso.tasks import Task


@dataclass(frozen=True)
class Rows:
    """Percent correct on every task of the sequence, in its order."""

    mtil: list[float]
    mcil: list[float]


def percent_correct(scores: Tensor, labels: Tensor) -> float:
    """How often the highest score is that of the right class, in percent."""
    return 100.0 * int((scores.argmax(-1) == labels).sum()) / len(labels)


def accuracy_rows(
    inference: Inference,
    tasks: Sequence[Task],
    pixels: Sequence[Pixels],
    templates: Sequence[str],
    batch_size: int,
    on_progress: Callable[[int], Any] = lambda n: None,
) -> Rows:
    """Score the model on every task in both settings."""
    groups = [task.class_names for task in tasks]
    rows, offset = Rows([], []), 0
    for task, pictures in zip(tasks, pixels, strict=True):
        scores = inference.scores(inference.embed_all(pictures, batch_size, on_progress), groups, templates)
        labels = torch.from_numpy(task.test.labels).to(scores.device)
        own = scores[:, offset : offset + len(task.class_names)]
        rows.mtil.append(percent_correct(own, labels))
        rows.mcil.append(percent_correct(scores, labels + offset))
        offset += len(task.class_names)
    return rows
