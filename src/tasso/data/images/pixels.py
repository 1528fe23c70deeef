"""The images of one set as a model sees them. Those of one size may be in memory; others are decoded when needed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from tasso.data.images.decode import decode
from tasso.data.images.transforms import (
    Boxes,
    Indices,
    Preprocess,
    centre_offset,
    crop_and_resize,
    normalise,
    random_boxes,
    resize_and_centre,
    resized,
)
from tasso.data.task import Array, ImageSet
from tasso.errors import DataError

CHUNK_BYTES = 2**28  # of decoded images that are handled at once
CHUNK_IMAGES = 256  # of a set that are read at once
PIL_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


class Pixels(Protocol):
    """Images of one set with one model's preprocessing."""

    def __len__(self) -> int: ...

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        """Random crops of the images at `indices`, `(B, 3, size, size)`, normalised, on the device.

        Args:
            draws: `(B, attempts, 4)`, see `transforms.crop_draws`.
        """

    def eval_view(self, indices: Indices) -> Tensor:
        """The images as evaluation sees them, `(B, 3, size, size)`, normalised, on the device."""


class MixedSizesError(DataError):
    """The images of a set are not of one size."""


class OneSizePixels:
    """Images of one size, in memory on the device or read when needed. Views are computed on the device, batch by
    batch, and have the same bits in both cases."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        read: Callable[[int], Array],
        preprocess: Preprocess,
        device: torch.device,
        pool: ThreadPoolExecutor,
        checked: bool = False,
    ) -> None:
        """
        Args:
            shape: (N, 3, H, W).
            read: the image with this index, `(3, H, W)` uint8.
            checked: all images are known to be of this size.
        """
        self.shape, self.read, self.preprocess, self.device, self.pool = shape, read, preprocess, device, pool
        self.checked = checked
        self.nbytes = math.prod(shape)
        self.stack: Tensor | None = None  # all images on the device, (N, 3, H, W) uint8, if they are in memory
        self._at_once = max(1, CHUNK_BYTES * shape[0] // max(1, self.nbytes))

    def __len__(self) -> int:
        return self.shape[0]

    def load(self, make_room: Callable[[], bool], on_progress: Callable[[int], Any] = lambda count: None) -> None:
        """Read the images into memory if there is room. At any time, this needs little more than they take.

        If there is none, they are read once nevertheless, unless all are known to be of one size.

        Args:
            make_room: is there room? Asked when the first images are read: often they are of other sizes already.

        Raises:
            MixedSizesError: an image has another size.
        """
        if self.checked and not make_room():
            return
        stack, step = None, min(self._at_once, CHUNK_IMAGES)
        for start in range(0, len(self), step):
            indices = np.arange(start, min(start + step, len(self)))
            images = self._read(indices)
            if start == 0 and (self.checked or make_room()):
                stack = torch.empty(self.shape, dtype=torch.uint8, device=self.device)
            if stack is not None:
                stack[start : start + step] = images
            on_progress(len(indices))
        self.stack, self.checked = stack, True

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        height, width = (np.full(len(indices), side, dtype=np.int64) for side in self.shape[-2:])
        boxes = random_boxes(draws, height, width)
        return self._view(indices, lambda images, part: crop_and_resize(images, boxes[part], self.preprocess))

    def eval_view(self, indices: Indices) -> Tensor:
        return self._view(indices, lambda images, part: resize_and_centre(images, self.preprocess))

    def _view(self, indices: Indices, view: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Of large photographs only a few are on the device at once, as numbers that take more room than bytes."""
        parts = [slice(first, first + self._at_once) for first in range(0, len(indices), self._at_once)]
        views = [view(self._take(indices[part]), part) for part in parts]
        return normalise(torch.cat(views) if len(views) > 1 else views[0], self.preprocess)

    def _take(self, indices: Indices) -> Tensor:
        stack = self.stack
        if stack is None:
            return self._read(indices).to(self.device, non_blocking=True)
        return stack[torch.from_numpy(indices).to(self.device, non_blocking=True)]

    def _read(self, indices: Indices) -> Tensor:
        """`(B, 3, H, W)` uint8, not on the device yet."""
        batch = torch.empty((len(indices), *self.shape[1:]), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        pixels: Array = batch.numpy()

        def copy(row: int) -> None:
            image = self.read(int(indices[row]))
            if image.shape != self.shape[1:]:
                raise MixedSizesError(f"an image of shape {image.shape} among others of {self.shape[1:]}")
            pixels[row] = image

        list(self.pool.map(copy, range(len(indices))))
        return batch


class DecodedPixels:
    """Images are decoded, cropped and resized one by one when needed, exactly as torchvision does it with Pillow."""

    def __init__(
        self, images: ImageSet, preprocess: Preprocess, device: torch.device, pool: ThreadPoolExecutor
    ) -> None:
        self.images, self.preprocess, self.device, self.pool = images, preprocess, device, pool

    def __len__(self) -> int:
        return len(self.images)

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        def view(row: int) -> Array:
            image = Image.fromarray(decode(self.images, int(indices[row])))
            size = np.array([image.height], np.int64), np.array([image.width], np.int64)
            return self._crop(image, random_boxes(draws[row : row + 1], *size))

        return self._batch(view, len(indices))

    def eval_view(self, indices: Indices) -> Tensor:
        def view(row: int) -> Array:
            image = Image.fromarray(decode(self.images, int(indices[row])))
            height, width = resized(image.height, image.width, self.preprocess)
            image = image.resize((width, height), PIL_FILTERS[self.preprocess.interpolation])
            size = self.preprocess.size
            top, left = centre_offset(height, size), centre_offset(width, size)
            return np.asarray(image.crop((left, top, left + size, top + size)))

        return self._batch(view, len(indices))

    def _crop(self, image: Image.Image, box: Boxes) -> Array:
        top, left, height, width = (int(v[0]) for v in (box.top, box.left, box.height, box.width))
        region = image.crop((left, top, left + width, top + height))
        size = (self.preprocess.size, self.preprocess.size)
        return np.asarray(region.resize(size, PIL_FILTERS[self.preprocess.interpolation]))

    def _batch(self, view: Callable[[int], Array], count: int) -> Tensor:
        images = torch.from_numpy(np.stack(list(self.pool.map(view, range(count)))))
        images = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        return normalise(images, self.preprocess)


def thread_pool(workers: int) -> ThreadPoolExecutor:
    """Threads for decoding: Pillow releases the interpreter lock while it decodes."""
    return ThreadPoolExecutor(workers or os.cpu_count() or 1)
