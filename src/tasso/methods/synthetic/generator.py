"""What a generator gives, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tasso.data.task import ImageSet, Source

OnProgress = Callable[[int], Any]


def silent(count: int) -> None:
    """No progress bar."""


@dataclass(frozen=True)
class Pairs:
    """Images with the prompts they belong to."""

    images: ImageSet  # labels[i] is the index of image i's prompt in `texts`
    texts: tuple[str, ...]  # the different prompts that have at least one image


@dataclass(frozen=True)
class Request:
    """Images of one task: a prompt and a seed (at least 0) for each, and a folder for this request alone."""

    prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: Path


class Generator(Protocol):
    """Where images for prompts come from."""

    stand_in: str  # "" for images made from the prompts; else a label that tables must show

    def check(self, requests: Sequence[Request] = ()) -> None:
        """Called before anything is trained: raise what would stop these requests later, with what to do."""

    def pairs(
        self, prompts: Sequence[str], seeds: Sequence[int], folder: Path, on_progress: OnProgress = silent
    ) -> Pairs:
        """One image for each prompt and seed, or fewer. The same request gives the same images.

        Args:
            prompts: one per image; they repeat.
            seeds: one per image, at least 0.
            folder: a folder of this request's own, which the generator may make and fill.
            on_progress: called with the number of images done since the last call; together the number of prompts.
        """


def collect(source: Source, chosen: Iterable[tuple[str, str]]) -> Pairs:
    """Pairs from (key, prompt), one per image; prompts are numbered in order of appearance."""
    keys: list[str] = []
    labels: list[int] = []
    numbers: dict[str, int] = {}
    for key, prompt in chosen:
        keys.append(key)
        labels.append(numbers.setdefault(prompt, len(numbers)))
    return Pairs(ImageSet(source, tuple(keys), np.asarray(labels, dtype=np.int64)), tuple(numbers))
