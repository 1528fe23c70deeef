"""Which images of a class are for training, validation and testing, where the data do not say; few-shot subsets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tasso.data.task import ImageSet


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


def hold_back(images: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Training images without a share of each class, and this share: the same for all methods and seeds of runs."""
    kept = np.ones(len(images), dtype=bool)
    for label in np.unique(images.labels):
        indices = np.flatnonzero(images.labels == label)
        _, held_back = split_class([images.keys[i] for i in indices], f"validation {label}", share, seed)
        kept[indices[held_back]] = False
    return images.subset(np.flatnonzero(kept)), images.subset(np.flatnonzero(~kept))


def few_shot(images: ImageSet, shots: int, seed: int) -> ImageSet:
    """`shots` images per class, or all it has, drawn by the seed: the same for all methods."""
    if not len(images):
        return images
    chosen: list[npt.NDArray[np.int64]] = []
    for label in np.unique(images.labels):
        indices = np.flatnonzero(images.labels == label)
        drawn = _generator(seed, f"shots {label}").permutation(len(indices))[:shots]
        chosen.append(indices[drawn])
    return images.subset(np.sort(np.concatenate(chosen)).astype(np.int64))


def _generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(purpose.encode())))
