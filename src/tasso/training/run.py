"""`Run`: results, models and predictions of a run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tasso.config import read_templates, unwrap
from tasso.data.images import thread_pool
from tasso.data.images.files import ImageLike, read_image
from tasso.errors import ConfigError, ModelError, RunError
from tasso.evaluation.predict import (
    BATCH,
    Candidates,
    FilePredictions,
    Prediction,
    Predictor,
    predict_files,
    select_candidates,
)
from tasso.files import no_run
from tasso.heads import HeadInference
from tasso.kernels import import_meanwhile
from tasso.methods import find_method
from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.inference import Inference
from tasso.models.loading import load_clip
from tasso.training.checkpoints import FROZEN, load_checkpoint
from tasso.training.engine import choose_device
from tasso.training.results import check_complete
from tasso.training.run_data import check_weights_of
from tasso.training.run_folder import RunFolder

__all__ = ["Image", "Prediction", "Run"]


class Run:
    """A run folder, finished or not, with one of its models: by default that after the latest task.

    Attributes:
        results: the content of `results.json`.
        config: all options of the run.
    """

    def __init__(self, path: Path | str, *, after: str | None = None, device: str = "auto") -> None:
        """`after`: the task (name or number) after which the model was saved; `0` is the model before all tasks."""
        self.folder, self.after, self.device = RunFolder(Path(path)), after, device
        results = self.folder.read_results()
        if results is None:
            raise RunError(no_run(Path(path)))
        check_complete(results, self.folder.results_file)
        try:
            self.method = find_method(results["method"])
        except ConfigError as error:
            raise RunError(f"{self.folder.results_file}: {error}") from None
        self.results: dict[str, Any] = results
        self.config = self.folder.read_config()

    @property
    def metrics(self) -> dict[str, dict[str, float] | None]:
        """Metrics by setting ("mtil", "mcil" and, where it was scored, "seen"); None while the run is unfinished."""
        settings = [setting for setting in ("mtil", "mcil", "seen") if setting in self.results]
        return {setting: self.results[setting]["metrics"] for setting in settings}

    @property
    def tasks(self) -> list[str]:
        """Task names in the order of learning."""
        return list(self.results["tasks"])

    @property
    def class_names(self) -> dict[str, list[str]]:
        """Class names by task."""
        return dict(self.results["class_names"])

    @property
    def templates(self) -> tuple[str, ...]:
        """Prompt templates."""
        return read_templates(unwrap(self.config.template))

    @property
    def task_templates(self) -> dict[str, list[str]]:
        """Prompt templates of tasks that have their own."""
        return dict(self.results["templates"])

    @property
    def checkpoints(self) -> list[str]:
        """Learned tasks whose checkpoint exists; sweeps remove some or all."""
        learned = self.tasks[: len(self.results["per_task"])]
        return [task for index, task in enumerate(learned) if self.folder.has_checkpoint(index, task)]

    @property
    def stage(self) -> str:
        """A description of which of the run's models this is."""
        task = self._loaded[0]
        if task == FROZEN and FROZEN not in self.tasks:
            return "frozen model with a head"
        return f"model after {task}" if task is not None else "model before all tasks"

    @property
    def clip(self) -> Clip:
        """The model."""
        return self.inference.clip

    def plain_clip(self) -> Clip:
        """The model, or a ModelError if the method adds modules that other libraries cannot load."""
        if not self.method.plain_model:
            raise ModelError(
                f"{self.folder.path}: {self.method.title} adds modules to the model that no other library can load; "
                "use it through tasso.load"
            )
        return self.clip

    @property
    def beside(self) -> str:
        """What this run classifies with beside the model's texts, such as a head or class means; empty if nothing."""
        if type(self.inference) is Inference:
            return ""
        if isinstance(self.inference, HeadInference):
            return f"the head {self.config.head}"
        return f"{type(self.inference).__name__} of {self.method.title}"

    def classifier(self) -> Classifier:
        """What this model classifies with among the classes of all tasks, in numbers; a ModelError if no export can
        have it."""
        return self.predictor.classifier(self.candidates())

    @property
    def inference(self) -> Inference:
        """How the model scores images against classes."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[str | None, Inference]:
        return load_checkpoint(self._pretrained(), self.folder, self.after)

    def _pretrained(self) -> Clip:
        device = choose_device(self.device)
        import_meanwhile(device)
        clip = load_clip(self.config.model, self.config.pretrained)
        check_weights_of(self.folder, clip)
        return clip.to(device, torch.float32)  # the same answer on every machine, and by what was exported

    def stages(self) -> Iterator[tuple[str | None, Predictor]]:
        """All models of the run, each with the task that it learned last; the pretrained one (None) first."""
        pretrained = self._pretrained()
        yield None, self._predictor(Inference(pretrained))
        for task in self.checkpoints:
            yield task, self._predictor(load_checkpoint(pretrained.copy(), self.folder, task)[1])

    @cached_property
    def predictor(self) -> Predictor:
        """The model with its prompt templates."""
        return self._predictor(self.inference)

    def _predictor(self, inference: Inference) -> Predictor:
        return Predictor(inference, self.templates, self.task_templates)

    def candidates(self, task: str | None = None, classes: Sequence[str] | None = None) -> Candidates:
        """The classes of one task, of all tasks of the run, or any others by name."""
        return select_candidates(self.class_names, task, classes, merge_names=self.config.merges_names)

    def classify(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        task: str | None = None,
        classes: Sequence[str] | None = None,
        top: int = 1,
    ) -> list[list[Prediction]]:
        """The most probable classes of each image.

        Probabilities are a softmax over the candidate classes: they add up to 1, also for an image that shows none of
        them.

        Args:
            images: one or more files, PIL images or height × width × 3 arrays of bytes.
            task: only classes of this task; without it, classes of all tasks.
            classes: any class names instead (open vocabulary).
            top: number of predictions per image.
        """
        candidates = self.candidates(task, classes)
        all_images = [images] if isinstance(images, (str, Path, Image.Image, np.ndarray)) else list(images)
        predictions: list[list[Prediction]] = []
        for start in range(0, len(all_images), BATCH):  # not all are decoded at once
            batch = [self.predictor.prepare(read_image(image)) for image in all_images[start : start + BATCH]]
            predictions += self.predictor.predict_prepared(batch, candidates, top)
        return predictions

    def predict_files(
        self, files: Sequence[Path], candidates: Candidates, top: int = 1, *, skip: bool = False
    ) -> Iterator[FilePredictions]:
        """As `classify`, for any number of files, one by one; with `skip`, unreadable files do not raise an error."""
        return predict_files(self.predictor, files, candidates, top, thread_pool(self.config.workers), skip=skip)
