"""What a model says about images: the likeliest of some classes, with probabilities."""

from __future__ import annotations

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
from tasso.errors import ConfigError, DataError, ModelError
from tasso.models.inference import Inference

BATCH = 64

MEANING = (
    "The probabilities are a softmax over these classes alone, so they add up to 100 %. An image of something else is "
    "shared out among them all the same."
)


@dataclass(frozen=True)
class Prediction:
    """One guess about one image.

    Attributes:
        class_name: the class.
        task: the task that it belongs to; empty for classes that the caller named.
        probability: 0 … 1, over the classes that there were to choose from.
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
    """Classes to choose from, task by task; names that the caller gave belong to no task."""

    groups: tuple[tuple[str, ...], ...]
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        count = sum(map(len, self.groups))
        classes = f"{count} class{'' if count == 1 else 'es'}"
        if self.tasks == ("",):
            return f"{classes} named by you"
        return f"{classes} of {'task ' + self.tasks[0] if len(self.tasks) == 1 else f'{len(self.tasks)} tasks'}"


def candidates(
    learned: Mapping[str, Sequence[str]], task: str | None = None, classes: Sequence[str] | None = None
) -> Candidates:
    """The classes of one task, of all tasks, or those named.

    Args:
        learned: class names by task.
        task: only this one.
        classes: any names instead.
    """
    if classes is not None:
        if task is not None:
            raise ConfigError("classes: give either classes or a task")
        names = tuple(dict.fromkeys(name.strip() for name in classes if name.strip()))
        if not names:
            raise ConfigError("classes: give at least one class name")
        return Candidates((names,), ("",))
    if task is not None and task not in learned:
        raise ConfigError(f"task: this run has no task {task!r}. Tasks: {', '.join(learned)}")
    chosen = (task,) if task is not None else tuple(learned)
    return Candidates(tuple(tuple(learned[name]) for name in chosen), chosen)


class Predictor:
    """A model with its prompts, and those that single tasks have for themselves."""

    def __init__(
        self, inference: Inference, templates: Sequence[str], own: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.inference, self.templates, self.own = inference, tuple(templates), dict(own or {})

    def predict(self, images: Sequence[Array], among: Candidates, top: int = 1) -> list[list[Prediction]]:
        """The `top` likeliest classes of each image, the likeliest first."""
        if top < 1:
            raise ConfigError(f"top: must be at least 1, not {top}")
        size = 1 if self.inference.shares_decisions else BATCH
        parts = [images[start : start + size] for start in range(0, len(images), size)]
        return [guess for part in parts for guess in self._predict_batch(part, among, top)]

    def _predict_batch(self, images: Sequence[Array], among: Candidates, top: int) -> list[list[Prediction]]:
        names = [name for group in among.groups for name in group]
        owners = [task for task, group in zip(among.tasks, among.groups, strict=True) for _ in group]
        seen = torch.cat([self._view(image) for image in images])
        templates = [self.own.get(task, self.templates) for task in among.tasks]
        scores = self.inference.scores(self.inference.embed(seen), among.groups, templates)
        probabilities = (self.inference.clip.logit_scale * scores).softmax(-1)
        if not bool(torch.isfinite(probabilities).all()):
            raise ModelError("the model's scores are not numbers; are its weights damaged?")
        best = probabilities.topk(min(top, len(names)))
        return [
            [Prediction(names[place], owners[place], value) for value, place in zip(values, places, strict=True)]
            for values, places in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def _view(self, image: Array) -> Tensor:
        """One image as evaluation sees it."""
        clip = self.inference.clip
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None].to(clip.device)
        return normalise(resize_and_centre(pixels, clip.preprocess), clip.preprocess)


@dataclass(frozen=True)
class Answer:
    """What came of one file: predictions, or why there are none."""

    file: Path
    predictions: tuple[Prediction, ...] = ()
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For one line of JSON."""
        if self.error:
            return {"image": str(self.file), "error": self.error}
        return {"image": str(self.file), "predictions": [guess.to_dict() for guess in self.predictions]}

    def lines(self) -> list[str]:
        """For people."""
        if self.error:
            return [str(self.file), f"  {self.error}"]
        return [str(self.file), *(f"  {guess}" for guess in self.predictions)]


def answers(
    predictor: Predictor, files: Sequence[Path], among: Candidates, top: int, pool: ThreadPoolExecutor, *, skip: bool
) -> Iterator[Answer]:
    """One answer a file, in their order, batch by batch. A file that is no image is an error, or skipped."""

    def read(file: Path) -> Array | DataError:
        try:
            return read_image(file)
        except DataError as error:
            return error

    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        read_now = list(pool.map(read, batch))
        images = [image for image in read_now if not isinstance(image, DataError)]
        predictions = iter(predictor.predict(images, among, top) if images else [])
        for file, image in zip(batch, read_now, strict=True):
            if not isinstance(image, DataError):
                yield Answer(file, tuple(next(predictions)))
            elif skip:
                yield Answer(file, error=str(image).removeprefix(f"{file}: "))
            else:
                raise image
