"""The images of one set as a model sees them: in memory when they fit and are of one size, else read when needed."""

from __future__ import annotations

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
from tasso.data.images.packed import PackedPixels
from tasso.data.images.packs import Packs
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


class InMemoryPixels:
    """All images in one uint8 tensor on the device, where views are computed batch by batch."""

    def __init__(self, stack: Tensor, preprocess: Preprocess) -> None:
        """
        Args:
            stack: `(N, 3, H, W)`, uint8.
        """
        self.stack, self.preprocess = stack, preprocess

    def __len__(self) -> int:
        return len(self.stack)

    def _take(self, indices: Indices) -> Tensor:
        return self.stack[torch.from_numpy(indices).to(self.stack.device, non_blocking=True)]

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        height, width = (np.full(len(indices), side, dtype=np.int64) for side in self.stack.shape[-2:])
        boxes = random_boxes(draws, height, width)
        return normalise(crop_and_resize(self._take(indices), boxes, self.preprocess), self.preprocess)

    def eval_view(self, indices: Indices) -> Tensor:
        return normalise(resize_and_centre(self._take(indices), self.preprocess), self.preprocess)


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


def load_pixels(
    images: ImageSet,
    preprocess: Preprocess,
    device: torch.device,
    pool: ThreadPoolExecutor,
    limit_gib: float,
    on_progress: Callable[[int], Any] = lambda count: None,
    packs: Packs | None = None,
) -> Pixels:
    """Load images into memory if all are of one size and fit the limit; else they are read when needed.

    Args:
        limit_gib: of the images of this set.
        packs: read from these where they have the images.
    """
    if packs and (locations := packs.find(images)) is not None:
        packed = PackedPixels(locations, preprocess, device, pool)
        if not packed.one_size or packed.nbytes > limit_gib * 2**30:
            return packed
        on_progress(len(images))
        return InMemoryPixels(torch.from_numpy(packed.stack()).to(device), preprocess)
    first = decode(images, 0)
    if first.nbytes * len(images) <= limit_gib * 2**30:
        stack = np.empty((len(images), *first.shape), dtype=np.uint8)
        if _fill(stack, images, pool, on_progress):
            return InMemoryPixels(torch.from_numpy(stack).permute(0, 3, 1, 2).contiguous().to(device), preprocess)
    return DecodedPixels(images, preprocess, device, pool)


def _fill(stack: Array, images: ImageSet, pool: ThreadPoolExecutor, on_progress: Callable[[int], Any]) -> bool:
    """Decode all images into the stack `(N, H, W, 3)`; False as soon as one image has another size."""

    def fill(indices: range) -> bool:
        for index in indices:
            image = decode(images, index)
            if image.shape != stack.shape[1:]:
                return False
            stack[index] = image
        return True

    chunk = 256
    chunks = [range(start, min(start + chunk, len(images))) for start in range(0, len(images), chunk)]
    # A small look-ahead: when sizes differ, the rest must not be decoded in vain.
    ahead = 2 * (os.cpu_count() or 1)
    futures = [pool.submit(fill, indices) for indices in chunks[:ahead]]
    for number, indices in enumerate(chunks):
        if not futures[number].result():
            for future in futures[number + 1 :]:
                future.cancel()
            return False
        if number + ahead < len(chunks):
            futures.append(pool.submit(fill, chunks[number + ahead]))
        on_progress(len(indices))
    return True
