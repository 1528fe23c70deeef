"""Tasks of random images: speed does not depend on what is seen."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasso.config import from_dict
from tasso.data import ImageSet, Task, TaskSequence
from tasso.data.task import Array
from tasso.models.loading import random_clip
from tasso.training.learner import Learner
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder


class NoiseSource:
    """Keys are seeds."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, key: str) -> Array:
        return np.random.default_rng(int(key)).integers(0, 256, (self.size, self.size, 3), dtype=np.uint8)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return []

    def describe(self, key: str) -> str:
        return f"noise:{key}"


def noise(count: int, size: int, classes: int = 1) -> ImageSet:
    """So many random images with labels in turn."""
    return ImageSet(NoiseSource(size), tuple(map(str, range(count))), np.arange(count, dtype=np.int64) % classes)


def two_tasks(classes: int, train: ImageSet, test: ImageSet, reference: ImageSet) -> TaskSequence:
    """Two tasks, so that methods with a memory have something to remember in the second."""
    tasks = tuple(
        Task(name, tuple(f"{name} thing number {label}" for label in range(classes)), train, test, test)
        for name in ("first", "second")
    )
    names = tuple(f"other thing number {label}" for label in range(200))
    return TaskSequence("noise", "noise", tasks, reference, names)


def noise_learner(options: dict[str, Any], *, classes: int, images: int, test: int = 1) -> Learner:
    """A learner with a random model on random images, a little larger than the model wants them, as packs are."""

    def sequence(size: int) -> TaskSequence:
        size = round(size * 256 / 224)
        train, tests = noise(images, size, classes), noise(test, size, classes)
        return two_tasks(classes, train, tests, noise(images, size))

    return bench_learner(options, sequence)


def bench_learner(options: dict[str, Any], sequence: Callable[[int], TaskSequence]) -> Learner:
    """A learner with a random model; `sequence` makes its tasks for images of the model's size."""
    place = Path(tempfile.mkdtemp(prefix="tasso-bench-"))
    config, method = resolve(from_dict({"out": str(place / "run"), **options}, "bench"))
    clip = random_clip(config.model)
    folder = RunFolder(config.out)
    folder.checkpoints.mkdir(parents=True)
    learner = Learner(config, method, folder, sequence(clip.preprocess.size), clip)
    weakref.finalize(learner, shutil.rmtree, place, ignore_errors=True)  # its checkpoint is as large as the model
    return learner
