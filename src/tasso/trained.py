"""A run in your hands: its numbers, its model, and what the model says about pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tasso.clip import Clip, load_clip
from tasso.config import known, read_templates
from tasso.engine import choose_device, choose_precision
from tasso.errors import ConfigError, DataError, ModelError, RunError
from tasso.images.decode import pixels_of, to_rgb
from tasso.images.views import normalise, resize_and_centre
from tasso.inference import Inference
from tasso.learner import load_checkpoint
from tasso.methods import METHODS
from tasso.runs import RunFolder
from tasso.tasks.task import Array

Picture = str | Path | Image.Image | Array


@dataclass(frozen=True)
class Prediction:
    """One guess about one picture. `task` is empty for classes that the caller named."""

    class_name: str
    task: str
    probability: float


class Run:
    """A run folder, finished or not."""

    def __init__(self, path: Path | str) -> None:
        self.folder = RunFolder(Path(path))
        results = self.folder.read_results()
        if results is None:
            raise RunError(f"{path}: no results.json here; is it a run folder?")
        self.results: dict[str, Any] = results
        self.config = self.folder.read_config()

    @property
    def metrics(self) -> dict[str, dict[str, float] | None]:
        """Metrics under "mtil" and "mcil"; None while the run is unfinished."""
        return {setting: self.results[setting]["metrics"] for setting in ("mtil", "mcil")}

    @property
    def tasks(self) -> list[str]:
        """Task names in the order of learning."""
        return list(self.results["tasks"])

    @property
    def clip(self) -> Clip:
        """The model after the latest task learned."""
        return self.inference.clip

    def plain_clip(self) -> Clip:
        """The same, if it is a CLIP model like any other."""
        method = METHODS[self.results["method"]]
        if not method.plain_model:
            raise ModelError(
                f"{self.folder.path}: {method.title} adds modules of its own to the model, which open_clip cannot "
                "load; use it through tasso.load"
            )
        return self.clip

    @cached_property
    def inference(self) -> Inference:
        """How the model after the latest task learned compares pictures with classes."""
        device = choose_device("auto")
        clip = load_clip(self.config.model, self.config.pretrained)
        clip.to(device, choose_precision(self.config.precision, device))
        return load_checkpoint(clip, self.folder)[1]

    def classify(
        self,
        pictures: Picture | Iterable[Picture],
        *,
        task: str | None = None,
        classes: Sequence[str] | None = None,
        top: int = 1,
    ) -> list[list[Prediction]]:
        """The best guesses for each picture.

        Args:
            pictures: one or more files, PIL images or height × width × 3 arrays of bytes.
            task: only classes of this task; without it, classes of all tasks.
            classes: any class names instead (open vocabulary).
            top: how many guesses a picture.
        """
        groups, tasks = self._candidates(task, classes)
        usual, own = read_templates(known(self.config.template)), self.results.get("templates", {})
        templates = [own.get(owner, usual) for owner in tasks]
        names = [name for group in groups for name in group]
        owners = [owner for owner, group in zip(tasks, groups, strict=True) for _ in group]
        several = [pictures] if isinstance(pictures, (str, Path, Image.Image, np.ndarray)) else list(pictures)
        guesses = []
        for picture in several:
            pixels = torch.from_numpy(_pixels(picture)).permute(2, 0, 1)[None].to(self.clip.device)
            seen = normalise(resize_and_centre(pixels, self.clip.preprocess), self.clip.preprocess)
            scores = self.inference.scores(self.inference.embed(seen), groups, templates)[0]
            best = (self.clip.logit_scale * scores).softmax(-1).topk(min(top, len(names)))
            guesses.append([
                Prediction(names[i], owners[i], float(p))
                for p, i in zip(best.values, best.indices.tolist(), strict=True)
            ])  # fmt: skip
        return guesses

    def _candidates(self, task: str | None, classes: Sequence[str] | None) -> tuple[list[list[str]], list[str]]:
        """Groups of class names, and the task that each group belongs to."""
        if classes is not None:
            if not classes:
                raise ConfigError("classes: give at least one class name")
            return [list(classes)], [""]
        learned: dict[str, list[str]] = self.results["class_names"]
        if task is not None and task not in learned:
            raise ConfigError(f"task: this run has no task {task!r}. Tasks: {', '.join(learned)}")
        chosen = [task] if task else list(learned)
        return [learned[name] for name in chosen], chosen


def _pixels(picture: Picture) -> Array:
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
            raise DataError(
                f"classify: an array must be height × width × 3 bytes (uint8), not {picture.shape} of {picture.dtype}"
            )
        return np.array(picture)  # torch wants an array it may write to
    if isinstance(picture, Image.Image):
        return to_rgb(picture)
    try:
        return pixels_of(str(picture))
    except Exception as error:  # as in images.decode
        raise DataError(f"{picture}: not a readable picture: {error}") from None
