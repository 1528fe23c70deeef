"""Images in packs, of any sizes. The host only copies pixels; crops are computed on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.images.decode import CHUNK_BYTES, ImagePool, made_ahead
from tasso.data.images.pack import split_sizes
from tasso.data.images.packs import Location
from tasso.data.images.transforms import Span, as_tensor, centre_spans, crop_spans, normalise, resample
from tasso.data.task import Array
from tasso.decoding.views import Boxes, Indices, Preprocess, random_boxes

CPU_IMAGES = 16  # at once on a CPU: intermediate results then stay in its cache


class PackedPixels:
    """Views are those of the original images: boxes are drawn for the original sizes, then scaled to the packed."""

    def __init__(
        self, locations: Sequence[Location], preprocess: Preprocess, device: torch.device, pool: ImagePool
    ) -> None:
        self.locations, self.preprocess, self.device, self.pool = list(locations), preprocess, device, pool
        self.sizes = np.array([pack.index.sizes[index] for pack, index in locations], dtype=np.int64)  # (N, 4)

    def __len__(self) -> int:
        return len(self.locations)

    @property
    def one_size(self) -> bool:
        """Are all images of one size, and none shrunk?"""
        return bool((self.sizes == self.sizes[0, [0, 1, 0, 1]]).all())

    def image(self, index: int) -> Array:
        """One image as packed, `(3, H, W)` uint8."""
        pack, own = self.locations[index]
        return pack.image(own)

    def copies(self, indices: Indices) -> Iterable[Array]:
        """Copies of images as packed: what is not in memory yet is read from the disk by threads."""

        def copy(part: slice) -> list[Array]:
            return [self.image(index).copy() for index in indices[part]]

        return made_ahead(copy, len(indices), self.pool, self.image(0).nbytes)

    def train_view(self, indices: Indices, draws: npt.NDArray[np.float64]) -> Tensor:
        packed, original = split_sizes(self.sizes[indices])
        boxes = random_boxes(draws, original.height, original.width)
        down, across = packed.height / original.height, packed.width / original.width
        scaled = Boxes(boxes.top * down, boxes.left * across, boxes.height * down, boxes.width * across)
        return self._view(indices, *crop_spans(scaled, self.preprocess))

    def eval_view(self, indices: Indices) -> Tensor:
        return self._view(indices, *centre_spans(*split_sizes(self.sizes[indices]), self.preprocess))

    def _view(self, indices: Indices, rows: Span, columns: Span) -> Tensor:
        packed, _ = split_sizes(self.sizes[indices])
        room = CHUNK_BYTES // (3 * int(packed.height.max()) * int(packed.width.max()))
        step = CPU_IMAGES if self.device.type == "cpu" else max(1, room)
        parts = [slice(first, first + step) for first in range(0, len(indices), step)]
        views = [self._resampled(indices[part], rows[part], columns[part]) for part in parts]
        return normalise(torch.cat(views) if len(views) > 1 else views[0], self.preprocess)

    def _resampled(self, indices: Indices, rows: Span, columns: Span) -> Tensor:
        """Only the pixels that the view depends on are read: of a very wide image a crop needs a small part."""
        packed, _ = split_sizes(self.sizes[indices])
        top, bottom = rows.reach(packed.height, self.preprocess.interpolation)
        left, right = columns.reach(packed.width, self.preprocess.interpolation)
        shape = (len(indices), 3, int((bottom - top).max()), int((right - left).max()))
        # Pinned memory is copied to the device while this thread and the device go on.
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        pixels: Array = batch.numpy()

        def copy(row: int) -> None:
            region = self.image(indices[row])[:, top[row] : bottom[row], left[row] : right[row]]
            pixels[row, :, : region.shape[1], : region.shape[2]] = region

        list(self.pool.map(copy, range(len(indices))))
        batch = batch.to(self.device, non_blocking=True)
        return resample(batch, as_tensor(rows.shifted(top), columns.shifted(left)), self.preprocess)
