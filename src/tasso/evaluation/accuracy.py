"""Accuracy of a model on every task. Each test set is embedded once and scored against the classes of its own task
(MTIL), against the classes of all tasks (MCIL) and, if asked for, against the classes learned so far (seen)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from tasso.data import Task
from tasso.data.images import Pixels
from tasso.evaluation.alignment import alignment
from tasso.models.inference import Embedded, Inference


@dataclass(frozen=True)
class AccuracyRows:
    """Accuracy in percent on every task, in sequence order: one row of each accuracy matrix.

    Attributes:
        mtil: scored against the classes of the image's own task. None: not measured.
        mcil: scored against the classes of all tasks. None: not measured.
        seen: per number of learned tasks, the row of images of learned tasks scored against the classes of all learned
            tasks, and of others against those of their own task. None: not asked for.
        alignment: image–text distances per task, if asked for and if there is one text embedding per class.
    """

    mtil: list[float | None]
    mcil: list[float | None]
    seen: list[list[float | None]] | None = None
    alignment: list[dict[str, Any]] | None = None

    def settings(self) -> dict[str, list[float | None]]:
        """The rows by the name of their setting; of the seen classes that of the fewest learned tasks."""
        return {"mtil": self.mtil, "mcil": self.mcil, **({"seen": self.seen[0]} if self.seen else {})}


def percent_correct(scores: Tensor, labels: Tensor, same: Tensor | None = None) -> float:
    """Share of images, in percent, whose highest score is that of their class.

    Args:
        scores: (N, C).
        labels: (N,), columns of `scores`.
        same: (C,), equal for columns that are one class; None: every column is a class of its own.
    """
    found = scores.argmax(-1)
    right = found == labels if same is None else same[found] == same[labels]
    return 100.0 * int(right.sum()) / len(labels)


def same_classes(tasks: Sequence[Task]) -> Tensor:
    """A number for each class of all tasks, (C,); classes of the same name have the same one."""
    names = [name for task in tasks for name in task.class_names]
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    return torch.tensor([first[name] for name in names])


def accuracy_rows(
    inference: Inference,
    tasks: Sequence[Task],
    pixels: Iterable[Pixels],
    templates: Sequence[str],
    batch_size: int | None,
    on_progress: Callable[[int], Any] = lambda n: None,
    *,
    with_alignment: bool = False,
    learned: Sequence[int] = (),
    merge_names: bool = False,
    kept: dict[str, Embedded] | None = None,
) -> AccuracyRows:
    """Evaluate a model on every task in all settings.

    Args:
        inference: the model.
        tasks: tasks with their classes and labels.
        pixels: of `Task.evaluated`, per task; those of a task are asked for when the tasks before it are evaluated.
        templates: prompt templates; tasks may have their own.
        batch_size: images per forward pass; None: `usual_batch`.
        on_progress: called with the number of images embedded.
        with_alignment: measure image–text distances too.
        learned: numbers of learned tasks, the first ones of `tasks`, for which the seen classes are scored.
        merge_names: classes of the same name are one class.
        kept: embedded images by task, of evaluations of the same model; filled and used.
    """
    groups, names = [task.class_names for task in tasks], [task.name for task in tasks]
    task_templates = [task.prompts(templates) for task in tasks]
    seen: list[list[float | None]] = [[] for _ in learned]
    rows, distances = AccuracyRows([], [], seen or None), list[dict[str, Any]]()
    same = same_classes(tasks) if merge_names else None
    ends = list(accumulate(map(len, groups)))  # columns after each task's last class
    for index, (task, images, own_templates) in enumerate(zip(tasks, pixels, task_templates, strict=True)):
        embedded = kept.get(task.name) if kept else None
        if embedded is None:
            embedded = inference.embed_all(images, batch_size, on_progress)
        if kept is not None:
            kept[task.name] = embedded
        scores = inference.scores(embedded, groups, task_templates, names)  # (images, classes of all tasks)
        labels = torch.from_numpy(task.evaluated.labels).to(scores.device)
        same = same.to(scores.device) if same is not None else None
        offset = ends[index] - len(task.class_names)
        own = percent_correct(scores[:, offset : ends[index]], labels)
        rows.mtil.append(own)
        rows.mcil.append(percent_correct(scores, labels + offset, same))
        for row, count in zip(seen, learned, strict=True):
            columns = scores[:, : ends[count - 1]] if index < count else None
            row.append(own if columns is None else percent_correct(columns, labels + offset, same))
        texts = inference.texts(task.class_names, own_templates) if with_alignment else None
        if texts is not None:
            distances.append(alignment(embedded.features, texts, labels))
    return dataclasses.replace(rows, alignment=distances) if distances else rows
