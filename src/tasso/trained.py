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

from tasso.clip import Clip, load_clip, read_templates
from tasso.config import known
from tasso.engine import choose_device, choose_precision
from tasso.errors import ConfigError, DataError, RunError
from tasso.images.decode import pixels_of, to_rgb
from tasso.images.views import normalise, resize_and_centre
from tasso.learner import load_last_checkpoint
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

    @cached_property
    def clip(self) -> Clip:
        """The model after the latest task learned."""
        device = choose_device("auto")
        clip = load_clip(self.config.model, self.config.pretrained)
        clip.to(device, choose_precision(self.config.precision, device))
        load_last_checkpoint(clip, self.folder)
        return clip

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
        names, owners = self._candidates(task, classes)
        embeddings = self.clip.class_embeddings(names, read_templates(known(self.config.template)))
        several = [pictures] if isinstance(pictures, (str, Path, Image.Image, np.ndarray)) else list(pictures)
        guesses = []
        for picture in several:
            pixels = torch.from_numpy(_pixels(picture)).permute(2, 0, 1)[None].to(self.clip.device)
            seen = normalise(resize_and_centre(pixels, self.clip.preprocess), self.clip.preprocess)
            with torch.no_grad():
                cosines = (self.clip.encode_images(seen) @ embeddings.mT)[0]
            best = (self.clip.logit_scale * cosines).softmax(-1).topk(min(top, len(names)))
            guesses.append([
                Prediction(names[i], owners[i], float(p))
                for p, i in zip(best.values, best.indices.tolist(), strict=True)
            ])  # fmt: skip
        return guesses

    def _candidates(self, task: str | None, classes: Sequence[str] | None) -> tuple[list[str], list[str]]:
        if classes is not None:
            if not classes:
                raise ConfigError("classes: give at least one class name")
            return list(classes), [""] * len(classes)
        learned: dict[str, list[str]] = self.results["class_names"]
        if task is not None and task not in learned:
            raise ConfigError(f"task: this run has no task {task!r}. Tasks: {', '.join(learned)}")
        chosen = [task] if task else list(learned)
        return [n for t in chosen for n in learned[t]], [t for t in chosen for _ in learned[t]]


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
