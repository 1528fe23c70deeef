"""Accuracy of a model on every task. Each test set is embedded once and scored against the classes of its own task
(MTIL) and against the classes of all tasks (MCIL)."""

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
class AccuracyRows:
    """Accuracy in percent on every task, in sequence order: one row of each accuracy matrix.

    Attributes:
        mtil: scored against the classes of the image's own task. None: not measured, and the model was removed.
        mcil: scored against the classes of all tasks. None: as above.
        alignment: image–text distances per task, if asked for and if there is one text embedding per class.
    """

    mtil: list[float | None]
    mcil: list[float | None]
    alignment: list[dict[str, Any]] | None = None

    def settings(self) -> dict[str, list[float | None]]:
        """The rows by the name of their setting."""
        return {"mtil": self.mtil, "mcil": self.mcil}


def percent_correct(scores: Tensor, labels: Tensor) -> float:
    """Share of images, in percent, whose highest score is that of their class. Scores (N, C), labels (N,)."""
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
) -> AccuracyRows:
    """Evaluate a model on every task in both settings.

    Args:
        inference: the model.
        tasks: tasks with their classes and labels.
        pixels: of `Task.evaluated`, per task.
        templates: prompt templates; tasks may have their own.
        batch_size: images per forward pass.
        on_progress: called with the number of images embedded.
        with_alignment: measure image–text distances too.
    """
    groups, names = [task.class_names for task in tasks], [task.name for task in tasks]
    task_templates = [task.prompts(templates) for task in tasks]
    rows, distances = AccuracyRows([], []), list[dict[str, Any]]()
    offset = 0  # column of the task's first class
    for task, images, own_templates in zip(tasks, pixels, task_templates, strict=True):
        embedded = inference.embed_all(images, batch_size, on_progress)
        scores = inference.scores(embedded, groups, task_templates, names)  # (images, classes of all tasks)
        labels = torch.from_numpy(task.evaluated.labels).to(scores.device)
        own = scores[:, offset : offset + len(task.class_names)]
        rows.mtil.append(percent_correct(own, labels))
        rows.mcil.append(percent_correct(scores, labels + offset))
        offset += len(task.class_names)
        texts = inference.texts(task.class_names, own_templates) if with_alignment else None
        if texts is not None:
            distances.append(alignment(embedded.features, texts, labels))
    return dataclasses.replace(rows, alignment=distances) if distances else rows
