"""The images of one set as a model sees them. Those of one size may be in memory; others are decoded when needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.images.decode import CHUNK_BYTES, ImagePool, decode_all
from tasso.data.images.transforms import as_tensor, centre, crop_spans, normalise, resample
from tasso.data.task import Array, ImageSet
from tasso.decoding.views import Indices, Preprocess, centre_crop, random_boxes, random_crop
from tasso.errors import DataError

CHUNK_IMAGES = 256  # of a set that are read at once


class Pixels(Protocol):
    """Images of one set with one model's preprocessing."""

    def __len__(self) -> int: ...

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        """Random crops of the images at `indices`, `(B, 3, size, size)`, normalised, on the device.

        Args:
            draws: `(B, attempts, 4)`, see `views.crop_draws`.
        """

    def eval_view(self, indices: Indices) -> Tensor:
        """The images as evaluation sees them, `(B, 3, size, size)`, normalised, on the device."""


class MixedSizesError(DataError):
    """The images of a set are not of one size; `row` counts those before the one that differs."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


def copy_rows(images: Iterator[Array], to: Array) -> None:
    """The next images, each `(3, H, W)`, as rows of an array `(N, 3, H, W)`."""
    for row, image in zip(range(len(to)), images, strict=False):
        if image.shape != to.shape[1:]:
            raise MixedSizesError(f"an image of shape {image.shape} among others of {to.shape[1:]}", row)
        to[row] = image


class OneSizePixels:
    """Images of one size, in memory on the device or read when needed. Views are computed on the device, batch by
    batch, and have the same bits in both cases."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        read: Callable[[Indices], Iterable[Array]],
        preprocess: Preprocess,
        device: torch.device,
        checked: bool = False,
        describe: Callable[[int], str] = "image {}".format,
    ) -> None:
        """
        Args:
            shape: (N, 3, H, W).
            read: the images at some indices, each `(3, H, W)` uint8.
            checked: all images are known to be of this size.
            describe: how messages name the image at an index.
        """
        self.describe = describe
        self.shape, self.read, self.preprocess, self.device, self.checked = shape, read, preprocess, device, checked
        self.nbytes = math.prod(shape)
        self.stack: Tensor | None = None  # all images on the device, (N, 3, H, W) uint8, if they are in memory
        self.ahead: Array | None = None  # all images on the host, from `read_ahead` until `load`
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
            self.ahead = None
            return
        if self.ahead is not None:
            self.stack, self.ahead = torch.from_numpy(self.ahead).to(self.device), None
            on_progress(len(self))
            return
        stack, done = None, 0
        for images in self._chunks(np.arange(len(self)), min(self._at_once, CHUNK_IMAGES)):
            if done == 0 and (self.checked or make_room()):
                stack = torch.empty(self.shape, dtype=torch.uint8, device=self.device)
            if stack is not None:
                stack[done : done + len(images)] = images
            done += len(images)
            on_progress(len(images))
        self.stack, self.checked = stack, True

    def read_ahead(self, stopped: Callable[[], bool]) -> None:
        """Read the images into the host's memory, for `load`. Uses no device: a thread may do it while others train.

        Raises:
            MixedSizesError: an image has another size.
        """
        ahead: Array = np.empty(self.shape, dtype=np.uint8)
        copy_rows(takewhile(lambda image: not stopped(), self.read(np.arange(len(self)))), ahead)
        if not stopped():
            self.ahead, self.checked = ahead, True

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        return self.view(indices, self.spans(draws))

    def eval_view(self, indices: Indices) -> Tensor:
        return self.view(indices, self.spans())

    def spans(self, draws: npt.NDArray[np.float64] | None = None) -> Tensor | None:
        """What views show of the images, for `view`: random crops, or the same of every image for evaluation."""
        if draws is None:
            return centre(*self.shape[-2:], self.preprocess)
        height, width = (np.full(len(draws), side, dtype=np.int64) for side in self.shape[-2:])
        return as_tensor(*crop_spans(random_boxes(draws, height, width), self.preprocess))

    def view(self, indices: Indices | Tensor, spans: Tensor | None) -> Tensor:
        """The images at some indices, `(B, 3, size, size)`, normalised, on the device.

        If the images are in memory and indices and spans are on the device, a CUDA graph can contain this. Of large
        photographs only a few are on the device at once, as numbers that take more room than bytes.
        """
        parts = [slice(first, first + self._at_once) for first in range(0, len(indices), self._at_once)]

        def view(part: slice) -> Tensor:
            own = spans if spans is None or spans.shape[-1] == 1 else spans[..., part]
            return resample(self._take(indices[part]), own, self.preprocess)

        views = [*map(view, parts)]
        return normalise(torch.cat(views) if len(views) > 1 else views[0], self.preprocess)

    def _take(self, indices: Indices | Tensor) -> Tensor:
        stack = self.stack
        if stack is not None:
            return stack[torch.as_tensor(indices).to(self.device, non_blocking=True)]
        assert not isinstance(indices, Tensor)
        return next(self._chunks(indices, len(indices))).to(self.device, non_blocking=True)

    def _chunks(self, indices: Indices, size: int) -> Iterator[Tensor]:
        """Some images, `size` at a time: `(size, 3, H, W)` uint8, not on the device yet."""
        images = iter(self.read(indices))
        for first in range(0, len(indices), size):
            shape = (min(size, len(indices) - first), *self.shape[1:])
            chunk = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
            try:
                copy_rows(images, chunk.numpy())
            except MixedSizesError as error:
                if not self.checked:
                    raise
                where = self.describe(int(indices[first + error.row]))
                raise DataError(f"{where}: it was replaced while it is used: {error}. Put it back") from None
            yield chunk


class DecodedPixels:
    """Images are decoded, cropped and resized one by one when needed, exactly as torchvision does it with Pillow."""

    def __init__(self, images: ImageSet, preprocess: Preprocess, device: torch.device, pool: ImagePool) -> None:
        self.images, self.preprocess, self.device, self.pool = images, preprocess, device, pool

    def __len__(self) -> int:
        return len(self.images)

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        return self._batch(indices, random_crop, draws)

    def eval_view(self, indices: Indices) -> Tensor:
        return self._batch(indices, centre_crop)

    def _batch(self, indices: Indices, view: Callable[..., Array], draws: Array | None = None) -> Tensor:
        views = decode_all(self.images, indices, self.pool, partial(view, self.preprocess), draws)
        images = torch.from_numpy(np.stack(list(views)))
        images = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        return normalise(images, self.preprocess)
