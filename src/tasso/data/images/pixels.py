"""Images ready to be looked at: held in memory when small and of one size, else read or decoded when wanted."""

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
    """Images of one set, seen through one model's preprocessing."""

    def __len__(self) -> int: ...

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        """Random crops (see `views.crop_draws`), normalised, on the device."""

    def eval_view(self, indices: Indices) -> Tensor:
        """The whole image as evaluation sees it, normalised, on the device."""


class StackedPixels:
    """All images in one uint8 tensor on the device; views are computed batch by batch there."""

    def __init__(self, stack: Tensor, preprocess: Preprocess) -> None:
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


class StoredPixels:
    """Images are decoded, cropped and resized one by one, exactly as torchvision does it on Pillow images."""

    def __init__(
        self, images: ImageSet, preprocess: Preprocess, device: torch.device, pool: ThreadPoolExecutor
    ) -> None:
        self.images, self.preprocess, self.device, self.pool = images, preprocess, device, pool

    def __len__(self) -> int:
        return len(self.images)

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        def view(place: int) -> Array:
            image = Image.fromarray(decode(self.images, int(indices[place])))
            size = np.array([image.height], np.int64), np.array([image.width], np.int64)
            return self._cut(image, random_boxes(draws[place : place + 1], *size))

        return self._batch(view, len(indices))

    def eval_view(self, indices: Indices) -> Tensor:
        def view(place: int) -> Array:
            image = Image.fromarray(decode(self.images, int(indices[place])))
            height, width = resized(image.height, image.width, self.preprocess)
            image = image.resize((width, height), PIL_FILTERS[self.preprocess.interpolation])
            size = self.preprocess.size
            top, left = centre_offset(height, size), centre_offset(width, size)
            return np.asarray(image.crop((left, top, left + size, top + size)))

        return self._batch(view, len(indices))

    def _cut(self, image: Image.Image, box: Boxes) -> Array:
        top, left, height, width = (int(v[0]) for v in (box.top, box.left, box.height, box.width))
        region = image.crop((left, top, left + width, top + height))
        size = (self.preprocess.size, self.preprocess.size)
        return np.asarray(region.resize(size, PIL_FILTERS[self.preprocess.interpolation]))

    def _batch(self, view: Callable[[int], Array], count: int) -> Tensor:
        images = torch.from_numpy(np.stack(list(self.pool.map(view, range(count)))))
        images = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        return normalise(images, self.preprocess)


def thread_pool(workers: int) -> ThreadPoolExecutor:
    """Threads for decoding: Pillow lets go of the interpreter while it decodes."""
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
    """Images in memory when they are all of one size and fit the limit, else read when wanted: from their packs, if
    they have some."""
    if packs and (places := packs.find(images)) is not None:
        packed = PackedPixels(places, preprocess, device, pool)
        if not packed.one_size or packed.nbytes > limit_gib * 2**30:
            return packed
        on_progress(len(images))
        return StackedPixels(torch.from_numpy(packed.stack()).to(device), preprocess)
    first = decode(images, 0)
    if first.nbytes * len(images) <= limit_gib * 2**30:
        stack = np.empty((len(images), *first.shape), dtype=np.uint8)
        if _fill(stack, images, pool, on_progress):
            return StackedPixels(torch.from_numpy(stack).permute(0, 3, 1, 2).contiguous().to(device), preprocess)
    return StoredPixels(images, preprocess, device, pool)


def _fill(stack: Array, images: ImageSet, pool: ThreadPoolExecutor, on_progress: Callable[[int], Any]) -> bool:
    """Decode everything into the stack; False as soon as one image has another size."""

    def place(indices: range) -> bool:
        for index in indices:
            image = decode(images, index)
            if image.shape != stack.shape[1:]:
                return False
            stack[index] = image
        return True

    chunk = 256
    chunks = [range(start, min(start + chunk, len(images))) for start in range(0, len(images), chunk)]
    # A small look-ahead: when sizes differ, the rest must not be decoded for nothing.
    ahead = 2 * (os.cpu_count() or 1)
    futures = [pool.submit(place, indices) for indices in chunks[:ahead]]
    for number, indices in enumerate(chunks):
        if not futures[number].result():
            for future in futures[number + 1 :]:
                future.cancel()
            return False
        if number + ahead < len(chunks):
            futures.append(pool.submit(place, chunks[number + ahead]))
        on_progress(len(indices))
    return True
