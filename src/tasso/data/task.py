"""What there is to learn: a named set of classes with images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Source(Protocol):
    """Where images come from: a folder, a zip, or code that draws them."""

    def read(self, key: str) -> bytes | Array:
        """An encoded image, or its pixels (height × width × 3, uint8). Safe to call from several threads."""

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that have no image."""

    def describe(self, key: str) -> str:
        """How to name this image to a person."""


@runtime_checkable
class Stamped(Protocol):
    """A source that tells cheaply whether its images have changed. Only such images are packed."""

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """For each key a text that is another one when its image has changed."""


@dataclass(frozen=True)
class ImageSet:
    """Images with labels; for reference images the labels are not used.

    Attributes:
        source: where the images are read from.
        keys: their names there.
        labels: the number of each image's class, from 0.
    """

    source: Source
    keys: tuple[str, ...]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def subset(self, indices: npt.NDArray[np.int64]) -> ImageSet:
        """The images at these places, in this order."""
        return ImageSet(self.source, tuple(self.keys[i] for i in indices), self.labels[indices])

    def checksum(self) -> str:
        """Another one when keys or labels are others."""
        lines = (f"{key}\t{label}" for key, label in zip(self.keys, self.labels.tolist(), strict=True))
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class JoinedSource:
    """Images from several sources; keys begin with the number of the source and a colon."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)

    def read(self, key: str) -> bytes | Array:
        source, rest = self.find(key)
        return source.read(rest)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if self.find(key)[0].missing([self.find(key)[1]])]

    def describe(self, key: str) -> str:
        source, rest = self.find(key)
        return source.describe(rest)

    def find(self, key: str) -> tuple[Source, str]:
        """The source that holds this image, and its key there."""
        number, _, rest = key.partition(":")
        return self.sources[int(number)], rest


def joined(sets: Sequence[ImageSet]) -> ImageSet:
    """Several sets as one, in their order."""
    keys = tuple(f"{number}:{key}" for number, images in enumerate(sets) for key in images.keys)
    labels = np.concatenate([images.labels for images in sets]) if sets else np.empty(0, dtype=np.int64)
    return ImageSet(JoinedSource([images.source for images in sets]), keys, labels)


@dataclass(frozen=True)
class Task:
    """One step of a sequence.

    Attributes:
        name: its name.
        class_names: by label.
        train: images to learn from.
        val: read and not used.
        test: images that accuracies are measured on.
        templates: prompts of its own; empty: the run's.
    """

    name: str
    class_names: tuple[str, ...]
    train: ImageSet
    val: ImageSet
    test: ImageSet
    templates: tuple[str, ...] = ()

    def prompts(self, usual: Sequence[str]) -> tuple[str, ...]:
        """Prompts that its class names are put into, where `usual` are the run's."""
        return self.templates or tuple(usual)

    def contents(self) -> dict[str, Any]:
        """How many classes and images it has, and a checksum of class names, labels and keys: another one when
        images have come or gone. Their bytes are not looked at."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for images in (self.train, self.val, self.test):
            digest.update(images.checksum().encode())
        counts = {split: len(getattr(self, split)) for split in ("train", "val", "test")}
        return {"classes": len(self.class_names), **counts, "checksum": digest.hexdigest()[:16]}


@dataclass(frozen=True)
class TaskSequence:
    """Tasks in the order in which they are learned, and the reference images that go with them."""

    benchmark: str
    name: str
    tasks: tuple[Task, ...]
    reference: ImageSet | None = None
    # Class names of the reference images' data set, and texts that the user gives for them.
    reference_names: tuple[str, ...] = ()
    reference_texts: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Task names in order."""
        return [task.name for task in self.tasks]

    def contents(self) -> dict[str, Any]:
        """What the data are, by the name of the task; reference images are there if they were asked for."""
        found = {task.name: task.contents() for task in self.tasks}
        if self.reference is None:
            return {"tasks": found}
        checksum = self.reference.checksum()[:16]
        return {"tasks": found, "reference": {"images": len(self.reference), "checksum": checksum}}
