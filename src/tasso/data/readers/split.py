"""Which images of a class are for training, validation and testing, where the data do not say; few-shot subsets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tasso.data.task import ImageSet

Indices = npt.NDArray[np.int64]


def held_out_count(images: int, share: float) -> int:
    """How many of a class's images are not trained on: their share, at least one, but one is left to train on. A class
    with a single image is trained and not evaluated."""
    return min(max(1, round(share * images)), images - 1)


def split_class(keys: Sequence[str], label: str, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the training images of one class and of those that are held out, each in ascending order.

    The choice depends on the seed, the label and the class's own images, not on other classes, the order of the list or
    the name of the task.
    """
    order = sorted(range(len(keys)), key=lambda index: keys[index])
    chosen = _generator(seed, label).permutation(len(keys))[: held_out_count(len(keys), share)]
    held_out = {order[number] for number in chosen.tolist()}
    indices = range(len(keys))
    return [i for i in indices if i not in held_out], [i for i in indices if i in held_out]


def per_class(images: ImageSet, choose: Callable[[int, Indices], Indices]) -> Indices:
    """Indices of some images of each class, ascending: those that `choose` takes, given a label and its indices."""
    chosen = [choose(int(label), np.flatnonzero(images.labels == label)) for label in np.unique(images.labels)]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *chosen]))


def hold_back(images: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Training images without a share of each class, and this share: the same for all methods and seeds of runs."""

    def held_out(label: int, indices: Indices) -> Indices:
        return indices[split_class([images.keys[i] for i in indices], f"validation {label}", share, seed)[1]]

    held = per_class(images, held_out)
    return images.subset(np.setdiff1d(np.arange(len(images)), held)), images.subset(held)


def few_shot(images: ImageSet, shots: int, seed: int) -> ImageSet:
    """`shots` images per class, or all it has, drawn by the seed: the same for all methods."""

    def drawn(label: int, indices: Indices) -> Indices:
        return indices[_generator(seed, f"shots {label}").permutation(len(indices))[:shots]]

    return images.subset(per_class(images, drawn))


def first_of_each(images: ImageSet, count: int) -> ImageSet:
    return images.subset(per_class(images, lambda label, indices: indices[:count]))


def draw(images: int, count: int, seed: int) -> Indices:
    """Indices of the reference images: all if there are no more than `count`, or so many of them, drawn as the paper's
    authors do."""
    if images <= count:
        return np.arange(images)
    return np.random.default_rng(seed).choice(images, count, replace=False)


def _generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(purpose.encode("utf-8", "surrogateescape"))))
