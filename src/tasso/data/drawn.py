"""The atlas benchmark as tasks: images are drawn when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasso.data import atlas
from tasso.data.atlas.benchmark import PHOTO
from tasso.data.task import Array, Draws, ImageSet, Task

SIZE = 64
PER_CLASS = {"train": 64, "val": 8, "test": 25}
REFERENCE_IMAGES = 4000


class DrawnSource(Draws):
    """Keys are `<domain>/<split>/<label>/<index>`, with the style at the end unless it is a photo."""

    def read(self, key: str) -> Array:
        domain, split, label, index, *style = key.split("/")
        return atlas.render(domain, int(label), int(index), split=split, size=SIZE, style=(*style, PHOTO)[0])

    def missing(self, keys: Sequence[str]) -> list[str]:
        return []

    def describe(self, key: str) -> str:
        return f"atlas:{key}"


class ReferenceSource(DrawnSource):
    """Keys are the numbers of the scenes."""

    def read(self, key: str) -> Array:
        return atlas.render_reference(int(key), size=SIZE)


@dataclass(frozen=True)
class Drawn:
    """What a task shows: classes by domain and label there, in one style."""

    classes: tuple[tuple[str, int], ...]
    style: str = PHOTO

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Classes, training and test images."""
        count = len(self.classes)
        return count, count * PER_CLASS["train"], count * PER_CLASS["test"]

    def task(self, name: str) -> Task:
        """The task under this name."""
        names = tuple(atlas.DOMAINS[domain].class_names[label] for domain, label in self.classes)
        source, end = DrawnSource(), "" if self.style == PHOTO else f"/{self.style}"

        def split(which: str) -> ImageSet:
            return ImageSet.of(source, [
                (f"{domain}/{which}/{label}/{index}{end}", number)
                for number, (domain, label) in enumerate(self.classes)
                for index in range(PER_CLASS[which])
            ])  # fmt: skip

        return Task(name, names, split("train"), split("val"), split("test"))


def task_names() -> tuple[str, ...]:
    """The domains in their order."""
    return tuple(atlas.DOMAINS)


def classes_of(name: str) -> int:
    """How many classes a domain has."""
    return len(atlas.DOMAINS[name].class_names)


def domain(name: str) -> Drawn:
    """All classes of a domain."""
    return Drawn(tuple((name, label) for label in range(classes_of(name))))


def sizes(name: str) -> tuple[int, int, int]:
    """Classes, training and test images of a domain."""
    return domain(name).sizes


def load_task(name: str) -> Task:
    """One domain as a task."""
    return domain(name).task(name)


def load_reference() -> tuple[ImageSet, tuple[str, ...]]:
    """Unlabelled scenes, and names of things in them that are no class of a task."""
    keys = tuple(str(index) for index in range(REFERENCE_IMAGES))
    return ImageSet(ReferenceSource(), keys, np.zeros(len(keys), dtype=np.int64)), tuple(atlas.EXTRAS)
