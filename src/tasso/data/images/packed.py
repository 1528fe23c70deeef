"""Images in packs, of any sizes. The host copies pixels, nothing more; crops are computed on the device."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.images.packs import Place
from tasso.data.images.transforms import (
    Boxes,
    Indices,
    Preprocess,
    Sizes,
    Span,
    centre_spans,
    crop_spans,
    normalise,
    random_boxes,
    resample,
)
from tasso.data.task import Array

CPU_IMAGES = 16  # at once on a CPU: what is computed in between then stays in its cache


class PackedPixels:
    """Views are those of the original images: boxes are drawn for their sizes, then scaled to what is packed."""

    def __init__(
        self, places: Sequence[Place], preprocess: Preprocess, device: torch.device, pool: ThreadPoolExecutor
    ) -> None:
        self.places, self.preprocess, self.device, self.pool = list(places), preprocess, device, pool
        # One row an image: height and width as it is held, height and width of the original.
        self.sizes = np.array(
            [
                (pack.held.height[i], pack.held.width[i], pack.original.height[i], pack.original.width[i])
                for pack, i in places
            ],
            dtype=np.int64,
        )

    def __len__(self) -> int:
        return len(self.places)

    @property
    def nbytes(self) -> int:
        """All pixels together."""
        return int(3 * (self.sizes[:, 0] * self.sizes[:, 1]).sum())

    @property
    def one_size(self) -> bool:
        """Are all images of one size, and none shrunk?"""
        return bool((self.sizes == self.sizes[0, [0, 1, 0, 1]]).all())

    def stack(self) -> Array:
        """All images, n × 3 × height × width, if they are of one size."""
        return np.stack([pack.image(place) for pack, place in self.places])

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        held, original = self._sizes(indices)
        boxes = random_boxes(draws, original.height, original.width)
        down, across = held.height / original.height, held.width / original.width
        scaled = Boxes(boxes.top * down, boxes.left * across, boxes.height * down, boxes.width * across)
        return self._view(indices, *crop_spans(scaled, self.preprocess))

    def eval_view(self, indices: Indices) -> Tensor:
        return self._view(indices, *centre_spans(*self._sizes(indices), self.preprocess))

    def _sizes(self, indices: Indices) -> tuple[Sizes, Sizes]:
        height, width, original_height, original_width = self.sizes[indices].T
        return Sizes(height, width), Sizes(original_height, original_width)

    def _view(self, indices: Indices, rows: Span, columns: Span) -> Tensor:
        step = CPU_IMAGES if self.device.type == "cpu" else len(indices)
        parts = [slice(first, first + step) for first in range(0, len(indices), step)]
        views = [self._resampled(indices[part], rows.part(part), columns.part(part)) for part in parts]
        return normalise(torch.cat(views) if len(views) > 1 else views[0], self.preprocess)

    def _resampled(self, indices: Indices, rows: Span, columns: Span) -> Tensor:
        """Only what the view looks at is read: a crop is never much wider than high, however wide the image is."""
        held, _ = self._sizes(indices)
        top, bottom = rows.reach(held.height, self.preprocess.interpolation)
        left, right = columns.reach(held.width, self.preprocess.interpolation)
        shape = (len(indices), 3, int((bottom - top).max()), int((right - left).max()))
        # Pinned memory is copied to the device while this thread and the device go on.
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        pixels: Array = batch.numpy()

        def copy(number: int) -> None:
            pack, place = self.places[indices[number]]
            region = pack.image(place)[:, top[number] : bottom[number], left[number] : right[number]]
            pixels[number, :, : region.shape[1], : region.shape[2]] = region

        list(self.pool.map(copy, range(len(indices))))
        batch = batch.to(self.device, non_blocking=True)
        return resample(batch, rows.moved(top), columns.moved(left), self.preprocess)
