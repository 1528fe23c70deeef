"""A fake CLIP whose class embeddings are the unit vectors of a 5-dimensional space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tasso.data import ImageSet, Source, Task
from tasso.distributed import SINGLE_PROCESS

# Class embeddings: x, y, z belong to the first task, u, v to the second.
x, y, z, u, v = torch.eye(5)


class AxisClip:
    """Class embeddings are unit vectors, pixels are embeddings already; records the sizes of batches."""

    def __init__(self) -> None:
        self.model = nn.Identity()
        self.batches: list[int] = []
        self.distributed = SINGLE_PROCESS

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        return torch.stack([dict(zip("xyzuv", torch.eye(5), strict=True))[name] for name in class_names])

    def encode_images(self, pixels: Tensor) -> Tensor:
        self.batches.append(len(pixels))
        return pixels


class Vectors:
    """Images given as vectors."""

    def __init__(self, *vectors: Tensor) -> None:
        self.stack = torch.stack(vectors)

    def __len__(self) -> int:
        return len(self.stack)

    def train_view(self, indices: npt.NDArray[np.int64], draws: npt.NDArray[np.float64]) -> Tensor:
        raise AssertionError("evaluation uses eval_view")

    def eval_view(self, indices: npt.NDArray[np.int64]) -> Tensor:
        return self.stack[torch.from_numpy(indices)]


def images(*labels: int) -> ImageSet:
    return ImageSet(cast(Source, None), tuple(f"{n}.png" for n in range(len(labels))), np.array(labels, np.int64))


def task(class_names: str, *labels: int) -> Task:
    return Task(class_names, tuple(class_names), images(), images(), images(*labels))
