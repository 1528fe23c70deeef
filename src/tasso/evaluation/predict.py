"""Predictions for images: the classes with the highest probabilities among given candidates."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasso.data.images.files import read_image
from tasso.data.images.transforms import normalise, resize_and_centre
from tasso.data.task import Array
from tasso.errors import ConfigError, DataError, ModelError, no_such
from tasso.models.classifier import Answer, Classifier
from tasso.models.inference import Inference

BATCH = 64

PROBABILITY_NOTE = (
    "The probabilities are a softmax over these classes alone, so they add up to 100 %, also for an image that shows "
    "none of them."
)


@dataclass(frozen=True)
class Prediction:
    """A class and its probability for one image.

    Attributes:
        class_name: the class.
        task: the task that the class belongs to, or all that share it; empty for class names given by the caller.
        probability: 0 … 1, a softmax over the candidates.
    """

    class_name: str
    task: str
    probability: float

    def __str__(self) -> str:
        return f"{100 * self.probability:5.1f} %  {self.class_name}" + (f"  ({self.task})" if self.task else "")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"class": self.class_name, "task": self.task or None, "probability": round(self.probability, 6)}


@dataclass(frozen=True)
class Candidates:
    """The classes to choose from.

    Attributes:
        groups: class names per task.
        tasks: the name of each group's task; empty for class names given by the caller.
        merge_names: classes of the same name in several tasks are one class.
    """

    groups: tuple[tuple[str, ...], ...]
    tasks: tuple[str, ...]
    merge_names: bool = False

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Task and name of each class of each group: the columns of scores."""
        return tuple((task, name) for task, names in zip(self.tasks, self.groups, strict=True) for name in names)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What may be predicted: the columns, or their names where those are one class."""
        columns: dict[str | int, list[int]] = {}
        for index, (_, name) in enumerate(self.columns):
            columns.setdefault(name if self.merge_names else index, []).append(index)
        found = ([self.columns[index] for index in own] for own in columns.values())
        return tuple(
            Answer(named[0][1], ", ".join(task for task, _ in named), tuple(own))
            for named, own in zip(found, columns.values(), strict=True)
        )

    def __str__(self) -> str:
        names = [name for group in self.groups for name in group]
        count = len(set(names) if self.merge_names else names)
        classes = f"{count} class{'' if count == 1 else 'es'}"
        if self.tasks == ("",):
            return f"{classes} named by you"
        return f"{classes} of {'task ' + self.tasks[0] if len(self.tasks) == 1 else f'{len(self.tasks)} tasks'}"


def select_candidates(
    class_names: Mapping[str, Sequence[str]],
    task: str | None = None,
    classes: Sequence[str] | None = None,
    *,
    merge_names: bool = False,
) -> Candidates:
    """The classes of one task, of all tasks, or any others by name.

    Args:
        class_names: the run's class names by task.
        task: only the classes of this task.
        classes: these class names instead (open vocabulary).
        merge_names: classes of the same name in several tasks are one class.
    """
    if classes is not None:
        if task is not None:
            raise ConfigError("classes: give either classes or a task")
        names = tuple(dict.fromkeys(name.strip() for name in classes if name.strip()))
        if not names:
            raise ConfigError("classes: give at least one class name")
        return Candidates((names,), ("",))
    if task is not None and task not in class_names:
        raise ConfigError(f"task: this run has {no_such('task', task, class_names)}")
    tasks = (task,) if task is not None else tuple(class_names)
    return Candidates(tuple(tuple(class_names[name]) for name in tasks), tasks, merge_names)


class Predictor:
    """A model with its prompt templates."""

    def __init__(
        self,
        inference: Inference,
        templates: Sequence[str],
        task_templates: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`task_templates`: templates of tasks that have their own."""
        self.inference, self.templates, self.task_templates = inference, tuple(templates), dict(task_templates or {})

    def predict(self, images: Sequence[Array], candidates: Candidates, top: int = 1) -> list[list[Prediction]]:
        """The `top` classes of each image (height × width × 3 bytes), the most probable first."""
        return self.predict_prepared([self.prepare(image) for image in images], candidates, top)

    def predict_prepared(
        self, images: Sequence[Tensor], candidates: Candidates, top: int = 1
    ) -> list[list[Prediction]]:
        """As `predict`, for images from `prepare`, which are small: large ones need not be in memory at once."""
        if top < 1:
            raise ConfigError(f"top: must be at least 1, not {top}")
        size = 1 if self.inference.shared_batch else BATCH
        batches = [images[start : start + size] for start in range(0, len(images), size)]
        return [predictions for batch in batches for predictions in self._predict_batch(batch, candidates, top)]

    def _predict_batch(self, images: Sequence[Tensor], candidates: Candidates, top: int) -> list[list[Prediction]]:
        pixels, answers = torch.cat(list(images)), candidates.answers
        embedded = self.inference.embed(pixels)
        scores = self.inference.scores(embedded, candidates.groups, self._templates(candidates), candidates.tasks)
        if len(answers) < scores.shape[1]:
            scores = torch.stack([scores[:, answer.columns].max(-1).values for answer in answers], dim=-1)
        probabilities = (self.inference.clip.logit_scale * scores).softmax(-1)  # (images, candidates)
        if not bool(torch.isfinite(probabilities).all()):
            raise ModelError("the model's scores contain inf or NaN; are its weights damaged?")
        best = probabilities.topk(min(top, len(answers)))
        return [
            [
                Prediction(answers[index].class_name, answers[index].task, value)
                for value, index in zip(values, indices, strict=True)
            ]
            for values, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def _templates(self, candidates: Candidates) -> list[Sequence[str]]:
        return [self.task_templates.get(task, self.templates) for task in candidates.tasks]

    def classifier(self, candidates: Candidates) -> Classifier:
        """All that predictions among these candidates need beside the model; a ModelError if no export can have it."""
        groups, templates = candidates.groups, self._templates(candidates)
        embedded = [self.inference.class_embeddings(names, own) for names, own in zip(groups, templates, strict=True)]
        return Classifier(
            candidates.columns, candidates.answers, candidates.merge_names,
            {task: tuple(own) for task, own in zip(candidates.tasks, templates, strict=True)},
            torch.cat(embedded), self.inference.clip.logit_scale, self.inference.linear(groups, candidates.tasks),
        )  # fmt: skip

    def prepare(self, image: Array) -> Tensor:
        """One image, height × width × 3 bytes, in the evaluation view, (1, 3, size, size)."""
        clip = self.inference.clip
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None].to(clip.device)
        return normalise(resize_and_centre(pixels, clip.preprocess), clip.preprocess)


@dataclass(frozen=True)
class FilePredictions:
    """Predictions for one file, or the reason why it could not be read."""

    file: Path
    predictions: tuple[Prediction, ...] = ()
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For one line of JSON."""
        if self.error:
            return {"image": str(self.file), "error": self.error}
        return {"image": str(self.file), "predictions": [prediction.to_dict() for prediction in self.predictions]}

    def lines(self) -> list[str]:
        """For printing."""
        if self.error:
            return [str(self.file), f"  {self.error}"]
        return [str(self.file), *(f"  {prediction}" for prediction in self.predictions)]


def predict_files(
    predictor: Predictor,
    files: Sequence[Path],
    candidates: Candidates,
    top: int,
    pool: ThreadPoolExecutor,
    *,
    skip: bool,
) -> Iterator[FilePredictions]:
    """Predictions per file, in the order of files, read and classified in batches.

    Args:
        pool: threads that decode images.
        skip: report unreadable files in the result instead of raising a DataError.
    """

    one_at_a_time = threading.Lock()

    def read(file: Path) -> Tensor | DataError:
        try:
            image = read_image(file)
        except DataError as error:
            return error
        with one_at_a_time:  # what is between a large image and its view takes more memory than both
            return predictor.prepare(image)

    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        decoded = list(pool.map(read, batch))
        images = [image for image in decoded if not isinstance(image, DataError)]
        predictions = iter(predictor.predict_prepared(images, candidates, top) if images else [])
        for file, image in zip(batch, decoded, strict=True):
            if not isinstance(image, DataError):
                yield FilePredictions(file, tuple(next(predictions)))
            elif skip:
                yield FilePredictions(file, error=str(image).removeprefix(f"{file}: "))
            else:
                raise image
