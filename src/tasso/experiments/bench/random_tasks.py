"""Learners with random weights on random images: speed does not depend on the content."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tasso.config import from_dict
from tasso.data import ImageSet, Task, TaskSequence
from tasso.data.task import Array, Source
from tasso.methods import import_method
from tasso.models.clip import Clip
from tasso.models.loading import random_clip
from tasso.training.learner import Learner
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder


class RandomSource(Source):
    """Random images; keys are seeds."""

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, key: str) -> Array:
        return np.random.default_rng(int(key)).integers(0, 256, (self.size, self.size, 3), dtype=np.uint8)

    def describe(self, key: str) -> str:
        return f"random:{key}"


def random_images(count: int, size: int, classes: int = 1) -> ImageSet:
    """Random images of size × size pixels whose labels cycle through the classes."""
    return ImageSet(RandomSource(size), tuple(map(str, range(count))), np.arange(count, dtype=np.int64) % classes)


def two_tasks(classes: int, train: ImageSet, test: ImageSet, reference: ImageSet) -> TaskSequence:
    """A sequence of two tasks on the same images: in the second, methods with a memory have one."""
    tasks = tuple(
        Task(name, tuple(f"{name} thing number {label}" for label in range(classes)), train, test, test)
        for name in ("first", "second")
    )
    names = tuple(f"other thing number {label}" for label in range(200))
    return TaskSequence("random", "random", tasks, reference, names)


def random_learner(options: Mapping[str, Any], *, classes: int, images: int = 512, test: int = 1) -> Learner:
    """A learner with a random model on random images, slightly larger than the model's input, as packed images are.

    Args:
        images: for training, and for reference; all are on the device before timing starts.
    """

    def sequence(size: int) -> TaskSequence:
        size = round(size * 256 / 224)
        train, tests = random_images(images, size, classes), random_images(test, size, classes)
        return two_tasks(classes, train, tests, random_images(images, size))

    return bench_learner(options, sequence)


@lru_cache(maxsize=1)
def _random_clip(model: str) -> Clip:
    """The last model that was asked for: random weights of a large one take up to a minute, a copy a second."""
    return random_clip(model)


def bench_learner(options: Mapping[str, Any], sequence: Callable[[int], TaskSequence]) -> Learner:
    """A learner with a random model; `sequence` creates its tasks, given the input size of the model."""
    temporary = Path(tempfile.mkdtemp(prefix="tasso-bench-"))
    config = from_dict({"out": str(temporary / "run"), "steps": 10**6, **options}, "bench")
    import_method(config.method["name"])
    config, method = resolve(config)
    clip = _random_clip(config.model).copy()
    folder = RunFolder(config.out)
    folder.checkpoints.mkdir(parents=True)
    learner = Learner(config, method, folder, sequence(clip.preprocess.size), clip)
    weakref.finalize(learner, shutil.rmtree, temporary, ignore_errors=True)  # its checkpoint is as large as the model
    return learner
