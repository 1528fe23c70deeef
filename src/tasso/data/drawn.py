"""The atlas benchmark as tasks: images are drawn when they are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasso.data import atlas
from tasso.data.task import Array, ImageSet, Task

SIZE = 64
PER_CLASS = {"train": 64, "val": 8, "test": 25}
REFERENCE_IMAGES = 4000


class DrawnSource:
    """Keys are `<domain>/<split>/<label>/<index>`."""

    def read(self, key: str) -> Array:
        domain, split, label, index = key.split("/")
        return atlas.render(domain, int(label), int(index), split=split, size=SIZE)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return []

    def describe(self, key: str) -> str:
        return f"atlas:{key}"


class ReferenceSource(DrawnSource):
    """Keys are the numbers of the scenes."""

    def read(self, key: str) -> Array:
        return atlas.render_reference(int(key), size=SIZE)


def task_names() -> tuple[str, ...]:
    """The domains in their order."""
    return tuple(atlas.DOMAINS)


def sizes(name: str) -> tuple[int, int, int]:
    """Classes, training and test images of a domain."""
    classes = len(atlas.DOMAINS[name].class_names)
    return classes, classes * PER_CLASS["train"], classes * PER_CLASS["test"]


def load_task(name: str) -> Task:
    """One domain as a task."""
    domain = atlas.DOMAINS[name]
    source = DrawnSource()

    def split(which: str) -> ImageSet:
        labels = np.repeat(np.arange(len(domain.class_names)), PER_CLASS[which])
        keys = tuple(f"{name}/{which}/{label}/{i % PER_CLASS[which]}" for i, label in enumerate(labels))
        return ImageSet(source, keys, labels.astype(np.int64))

    return Task(name, domain.class_names, split("train"), split("val"), split("test"))


def load_reference() -> tuple[ImageSet, tuple[str, ...]]:
    """Unlabelled scenes, and names of things in them that are no class of a task."""
    keys = tuple(str(index) for index in range(REFERENCE_IMAGES))
    return ImageSet(ReferenceSource(), keys, np.zeros(len(keys), dtype=np.int64)), tuple(atlas.EXTRAS)
