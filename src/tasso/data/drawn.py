"""The atlas benchmark as tasks: images are drawn when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasso.data import atlas
from tasso.data.atlas.benchmark import PHOTO
from tasso.data.task import SPLITS, Array, Draws, Task

SIZE = 64
PER_CLASS = {"train": 64, "val": 8, "test": 25}
REFERENCE_IMAGES = 4000


class DrawnSource(Draws):
    """Keys are `<domain>/<split>/<label>/<index>`, with the style at the end unless it is a photo."""

    def read(self, key: str) -> Array:
        domain, split, label, index, *style = key.split("/")
        return atlas.render(domain, int(label), int(index), split=split, size=SIZE, style=(*style, PHOTO)[0])

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

    def task(self, root: Path) -> Task:
        """The task; nothing is read from `root`."""
        names = tuple(atlas.DOMAINS[domain].class_names[label] for domain, label in self.classes)
        end = "" if self.style == PHOTO else f"/{self.style}"
        pairs = {
            split: [
                (f"{domain}/{split}/{label}/{index}{end}", number)
                for number, (domain, label) in enumerate(self.classes)
                for index in range(PER_CLASS[split])
            ]
            for split in SPLITS
        }
        return Task.of("atlas", names, DrawnSource(), pairs)


def scenes() -> Task:
    """Reference images: unlabelled scenes. The classes are names of things in them that are no class of a task."""
    pairs = [(str(index), 0) for index in range(REFERENCE_IMAGES)]
    return Task.of("scenes", tuple(atlas.EXTRAS), ReferenceSource(), {"train": pairs})
