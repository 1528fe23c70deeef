"""Data sets that torchvision has a class for: its files, labels and class names, without decoding an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasso.data.annotated import FolderSource
from tasso.data.task import Array, ImageSet, Source
from tasso.errors import DataError, install


class ArraySource(Source):
    """Images that lie in one array, (N, H, W) or (N, H, W, 3) bytes; keys are `<part>/<index>`."""

    def __init__(self, images: Array, where: str) -> None:
        self.images, self.where = images, where

    def read(self, key: str) -> Array:
        image = self.images[int(key.rpartition("/")[2])]
        return image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=-1)

    def describe(self, key: str) -> str:
        return f"{self.where}:{key}"


def read_torchvision(kind: str, root: Path, **part: Any) -> tuple[ImageSet, tuple[str, ...]]:
    """One part of a data set, and its class names as torchvision has them.

    Args:
        kind: the name of torchvision's class.
        root: the folder that torchvision is given.
        part: of its arguments those that choose the part, such as `split`.
    """
    from torchvision import datasets

    try:
        data = getattr(datasets, kind)(root, **part)
    except ImportError:
        raise DataError(f"{kind}: scipy is needed to read it: {install('data')}") from None
    except Exception as error:  # torchvision raises errors of many kinds for what is missing or damaged
        raise DataError(
            f"{root}: torchvision's {kind} cannot be read there: {error}. To get what can be downloaded: "
            f"tasso data prepare {kind} --root {root}"
        ) from None
    names = getattr(data, "classes", None) or data.categories
    if isinstance(getattr(data, "data", None), np.ndarray) or hasattr(data, "raw_folder"):
        which = "-".join(map(str, part.values()))
        images = np.asarray(data.data)
        keys = tuple(f"{which}/{index}" for index in range(len(images)))
        labels = np.asarray(data.targets, dtype=np.int64)
        return ImageSet(ArraySource(images, f"{root}:{kind}"), keys, labels), tuple(names)
    pairs = [(Path(file).relative_to(root).as_posix(), int(label)) for file, label in _files(data)]
    if not pairs:
        raise DataError(f"{root}: torchvision's {kind} has no images there")
    return ImageSet.of(FolderSource(root), pairs), tuple(names)


def _files(data: Any) -> list[tuple[str | Path, int]]:
    """Files and labels, which torchvision's classes keep under different names."""
    if type(data).__name__ == "Caltech101":
        folders = [Path(data.root) / "101_ObjectCategories" / data.categories[label] for label in data.y]
        files = [folder / f"image_{number:04d}.jpg" for folder, number in zip(folders, data.index, strict=True)]
        return list(zip(files, data.y, strict=True))
    for key in ("samples", "_samples"):
        if hasattr(data, key):
            return list(getattr(data, key))
    files = getattr(data, "_image_files", None) or data._images
    return list(zip(files, data._labels, strict=True))
