"""Accuracy rows: each test set is embedded once per model and scored twice, against its own classes (MTIL) and
against the classes of all tasks (MCIL)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasso.data import Task
from tasso.data.images import Pixels
from tasso.evaluation.alignment import alignment
from tasso.models.inference import Inference


@dataclass(frozen=True)
class Rows:
    """Percent correct on every task of the sequence, in its order. None: not measured, and the model is gone."""

    mtil: list[float | None]
    mcil: list[float | None]
    # Distances between images and texts, task by task, if they were asked for and there is one text a class.
    alignment: list[dict[str, Any]] | None = None

    def settings(self) -> dict[str, list[float | None]]:
        """The accuracies by the name of the setting."""
        return {"mtil": self.mtil, "mcil": self.mcil}


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
    *,
    with_alignment: bool = False,
) -> Rows:
    """Score the model on every task in both settings."""
    groups = [task.class_names for task in tasks]
    prompts = [task.prompts(templates) for task in tasks]
    rows, distances, offset = Rows([], []), list[dict[str, Any]](), 0
    for task, images in zip(tasks, pixels, strict=True):
        embedded = inference.embed_all(images, batch_size, on_progress)
        scores = inference.scores(embedded, groups, prompts)
        labels = torch.from_numpy(task.test.labels).to(scores.device)
        own = scores[:, offset : offset + len(task.class_names)]
        rows.mtil.append(percent_correct(own, labels))
        rows.mcil.append(percent_correct(scores, labels + offset))
        offset += len(task.class_names)
        texts = inference.texts(task.class_names, task.prompts(templates)) if with_alignment else None
        if texts is not None:
            distances.append(alignment(embedded.features, texts, labels))
    return dataclasses.replace(rows, alignment=distances) if distances else rows
