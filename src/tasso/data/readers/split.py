"""Which images of a class are for training and which for testing, where the data do not say; and few of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tasso.data.task import ImageSet


def held_back(images: int, share: float) -> int:
    """How many of a class's images are held back: their share, at least one, and one at least is left to learn
    from. A class with a single image is learned and not tested."""
    return min(max(1, round(share * images)), images - 1)


def divided(keys: Sequence[str], label: str, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Places of the training and of the test images of one class, each in their order.

    The choice depends on the seed, the label and the class's own images, not on other classes, on the order of the
    list or on what the task is called.
    """
    order = sorted(range(len(keys)), key=lambda place: keys[place])
    chosen = _generator(seed, label).permutation(len(keys))[: held_back(len(keys), share)]
    test = {order[number] for number in chosen.tolist()}
    places = range(len(keys))
    return [p for p in places if p not in test], [p for p in places if p in test]


def few(images: ImageSet, count: int, seed: int) -> ImageSet:
    """`count` images of each class, or all it has, drawn by the seed: the same for all methods."""
    if not len(images):
        return images
    chosen: list[npt.NDArray[np.int64]] = []
    for label in np.unique(images.labels):
        places = np.flatnonzero(images.labels == label)
        drawn = _generator(seed, f"shots {label}").permutation(len(places))[:count]
        chosen.append(places[drawn])
    return images.subset(np.sort(np.concatenate(chosen)).astype(np.int64))


def _generator(seed: int, word: str) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(word.encode())))
