"""A task: a named set of classes with images. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tasso.config import EvaluatedSplit

Array = npt.NDArray[Any]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


class Source(Protocol):
    """Where images are read from: a folder, a zip, or code that draws them."""

    def read(self, key: str) -> bytes | Array:
        """An encoded image, or its pixels, `(H, W, 3)` uint8. Safe to call from several threads."""

    def missing(self, keys: Sequence[str]) -> list[str]:
        """The keys without an image; none where a reader has found the images itself."""
        return []

    def describe(self, key: str) -> str:
        """How messages name this image."""


@runtime_checkable
class Stamped(Protocol):
    """A source that can tell cheaply whether its images have changed. Only such images are packed."""

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """One text per key; it changes when the image changes."""


class Draws(Source):
    """A source that draws images by code, each from its key alone: another process can do it as well."""

    @abstractmethod
    def read(self, key: str) -> Array:
        """Pixels, `(H, W, 3)` uint8."""


class NotTurned(bytes):
    """An encoded image that is not turned upright when it is decoded."""


@dataclass(frozen=True)
class AsStored:
    """Image files of another source with their pixels as stored, whatever orientation their EXIF data note."""

    files: Source

    def read(self, key: str) -> NotTurned:
        content = self.files.read(key)
        assert isinstance(content, bytes)
        return NotTurned(content)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return self.files.missing(keys)

    def describe(self, key: str) -> str:
        return self.files.describe(key)

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """Those of the files."""
        assert isinstance(self.files, Stamped)
        return self.files.stamps(keys)


@dataclass(frozen=True)
class ImageSet:
    """Images with labels; the labels of reference images are not used.

    Attributes:
        source: where the images are read from.
        keys: their names there, N of them.
        labels: `(N,)`, the class numbers, from 0.
    """

    source: Source
    keys: tuple[str, ...]
    labels: npt.NDArray[np.int64]

    @staticmethod
    def of(source: Source, pairs: Sequence[tuple[str, int]]) -> ImageSet:
        """From keys and labels in pairs."""
        labels = np.asarray([label for _, label in pairs], dtype=np.int64)
        return ImageSet(source, tuple(key for key, _ in pairs), labels)

    def __len__(self) -> int:
        return len(self.keys)

    def subset(self, indices: npt.NDArray[np.int64]) -> ImageSet:
        """The images at these indices, in this order."""
        return ImageSet(self.source, tuple(self.keys[i] for i in indices), self.labels[indices])

    def checksum(self) -> str:
        """SHA-256 of keys and labels. The images themselves are not read."""
        lines = (f"{key}\t{label}" for key, label in zip(self.keys, self.labels.tolist(), strict=True))
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class JoinedSource:
    """Images from several sources; a key begins with the number of its source and a colon."""

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
        """The source of this image, and its key there."""
        number, _, rest = key.partition(":")
        return self.sources[int(number)], rest


def joined(sets: Sequence[ImageSet]) -> ImageSet:
    """Several sets as one, in the given order."""
    keys = tuple(f"{number}:{key}" for number, images in enumerate(sets) for key in images.keys)
    labels = np.concatenate([images.labels for images in sets]) if sets else np.empty(0, dtype=np.int64)
    return ImageSet(JoinedSource([images.source for images in sets]), keys, labels)


@dataclass(frozen=True)
class Task:
    """One step of a sequence.

    Attributes:
        name: unique within the sequence.
        class_names: by label.
        train: images to train on.
        val: validation images; not used in training.
        test: test images; none if accuracies are measured on validation images.
        templates: prompt templates of its own; empty: those of the run.
        split: the images that accuracies are measured on.
        train_templates: prompt templates of training; empty: those of evaluation.
        left_out: keys of images that cannot be read and are in none of its sets.
    """

    name: str
    class_names: tuple[str, ...]
    train: ImageSet
    val: ImageSet
    test: ImageSet
    templates: tuple[str, ...] = ()
    split: EvaluatedSplit = "test"
    train_templates: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @staticmethod
    def of(
        name: str,
        class_names: Sequence[str],
        source: Source,
        pairs: Mapping[Split, Sequence[tuple[str, int]]],
        templates: tuple[str, ...] = (),
    ) -> Task:
        """From keys and labels in pairs, by split; a split that is left out has no images."""
        train, val, test = (ImageSet.of(source, pairs.get(split, ())) for split in SPLITS)
        return Task(name, tuple(class_names), train, val, test, templates)

    @property
    def sets(self) -> dict[Split, ImageSet]:
        """Its images by split."""
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of classes and of images per split."""
        return {"classes": len(self.class_names), **{split: len(images) for split, images in self.sets.items()}}

    @property
    def evaluated(self) -> ImageSet:
        """The images that accuracies are measured on."""
        return self.val if self.split == "val" else self.test

    def with_evaluated(self, images: ImageSet) -> Task:
        """The task with these images in their place."""
        return replace(self, val=images) if self.split == "val" else replace(self, test=images)

    def with_sets(self, change: Callable[[ImageSet], ImageSet]) -> Task:
        """The task with all its sets changed alike."""
        return replace(self, train=change(self.train), val=change(self.val), test=change(self.test))

    def with_templates(self, templates: tuple[str, ...]) -> Task:
        """The task with these prompt templates, in training as well; none: those of the run."""
        return replace(self, templates=templates, train_templates=())

    def prompts(self, default: Sequence[str]) -> tuple[str, ...]:
        """The task's own prompt templates, or else `default`, those of the run."""
        return self.templates or tuple(default)

    def train_prompts(self, default: Sequence[str]) -> tuple[str, ...]:
        return self.train_templates or self.prompts(default)

    def contents(self) -> dict[str, Any]:
        """`counts`, and a checksum of class names, prompts, labels and keys. Images are not read."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for templates in filter(None, (self.templates, self.train_templates)):
            digest.update(json.dumps(templates).encode())
        for images in self.sets.values():
            digest.update(images.checksum().encode())
        return {**self.counts, "checksum": digest.hexdigest()[:16]}

    def stamp(self) -> str | None:
        """A checksum of what shows cheaply that images were replaced; None where nothing does."""
        digest = hashlib.sha256()
        for images in self.sets.values():
            if not isinstance(images.source, Stamped):
                return None
            try:
                digest.update("\n".join(images.source.stamps(images.keys)).encode())
            except (OSError, LookupError):  # an image that is gone: whoever reads it says so
                return None
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TaskSequence:
    """Tasks in the order in which they are learned, and their reference images."""

    benchmark: str
    name: str
    tasks: tuple[Task, ...]
    reference: ImageSet | None = None
    # Class names of the reference images' data set, and reference texts given by the user.
    reference_names: tuple[str, ...] = ()
    reference_texts: tuple[str, ...] = ()
    # Keys of images that cannot be read and were left out, by task, and of reference images.
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]

    def stamps(self) -> dict[str, str]:
        """`Task.stamp` by task name, where there is one."""
        return {task.name: stamp for task in self.tasks if (stamp := task.stamp())}

    def contents(self) -> dict[str, Any]:
        """`Task.contents` by task name, and the same of the reference images and texts if they were loaded."""
        found: dict[str, Any] = {"tasks": {task.name: task.contents() for task in self.tasks}}
        if self.reference is not None:
            found["reference"] = {"images": len(self.reference), "checksum": self.reference.checksum()[:16]}
        for key in ("reference_names", "reference_texts"):
            if texts := getattr(self, key):
                checksum = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
                found[key] = {"texts": len(texts), "checksum": checksum}
        return found
