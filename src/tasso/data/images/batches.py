"""Which images a step sees. Every choice is a function of (seed, task, stream, step) alone, so a resumed run
draws exactly what an uninterrupted one would have drawn, without any state to save."""

from __future__ import annotations

import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tasso.data.images.pixels import Pixels, StackedPixels
from tasso.data.images.transforms import Indices, crop_draws
from tasso.distributed import SINGLE_PROCESS, Distributed

View = Literal["train", "eval"]


@dataclass(frozen=True)
class ImageBatch:
    """Images of one step, their places in the set (on the host and on the device), and their labels."""

    pixels: Tensor
    indices: Indices
    labels: Tensor
    places: Tensor

    def chunk(self, number: int, count: int) -> ImageBatch:
        """The number-th of `count` equal parts."""
        size = len(self.labels) // count
        part = slice(number * size, (number + 1) * size)
        return ImageBatch(self.pixels[part], self.indices[part], self.labels[part], self.places[part])


# Images of a step, and on CUDA the event after which they are there.
Ahead = tuple[ImageBatch, torch.cuda.Event | None]


class Stream:
    """An endless, shuffled sequence of batches from one set."""

    def __init__(
        self,
        name: str,
        pixels: Pixels,
        labels: Indices,
        batch_size: int,
        seed: tuple[int, ...],
        device: torch.device,
        view: View = "train",
        distributed: Distributed = SINGLE_PROCESS,
    ) -> None:
        """With several processes each prepares its part of the images; labels and places are those of all."""
        self.distributed = distributed
        self.pixels, self.labels, self.batch_size, self.view = pixels, labels, batch_size, view
        self.seed = (*seed, zlib.crc32(name.encode()))
        self.device = device
        # Images in memory are ready at once; those on disk are prepared one step ahead.
        self.ahead = None if isinstance(pixels, StackedPixels) else ThreadPoolExecutor(1)
        self.side: torch.cuda.Stream | None = None
        if self.ahead and device.type == "cuda":  # copies and crops of the next step go beside the training
            self.side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pending: dict[int, Future[Ahead]] = {}
        self.permutations: dict[int, Indices] = {}

    def indices(self, step: int) -> Indices:
        """Places of step's images: shuffled epochs, the incomplete last batch of each left out."""
        count, size = len(self.pixels), self.batch_size
        if count >= size:
            epoch, place = divmod(step, count // size)
            return self._permutation(epoch)[place * size : (place + 1) * size]
        # Fewer images than a batch holds: go round and round.
        first, start = divmod(step * size, count)
        rounds = [self._permutation(first + more) for more in range(-(-(start + size) // count))]
        return np.concatenate(rounds)[start : start + size]

    def _permutation(self, epoch: int) -> Indices:
        if epoch not in self.permutations:  # drawn once an epoch; neighbours are kept for rounds and read-ahead
            self.permutations = {kept: p for kept, p in self.permutations.items() if abs(kept - epoch) <= 1}
            self.permutations[epoch] = self._draw_permutation(epoch)
        return self.permutations[epoch]

    def _draw_permutation(self, epoch: int) -> Indices:
        return np.random.default_rng((*self.seed, 0, epoch)).permutation(len(self.pixels))

    def batch(self, step: int) -> ImageBatch:
        """The images of this step."""
        if self.ahead is None:
            return self._prepare(step)
        now = self.pending.pop(step, None) or self.ahead.submit(self._prepare_aside, step)
        self.pending = {step + 1: self.ahead.submit(self._prepare_aside, step + 1)}
        seen, ready = now.result()
        if ready is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(ready)
            for tensor in (seen.pixels, seen.labels, seen.places):
                tensor.record_stream(current)  # else the side stream might write there before this one has read
        return seen

    def close(self) -> None:
        """Stop preparing ahead."""
        if self.ahead is not None:
            self.ahead.shutdown(wait=True, cancel_futures=True)

    def _prepare_aside(self, step: int) -> Ahead:
        """Beside what the training stream does; the event tells it when the images are there."""
        if self.side is None:
            return self._prepare(step), None
        with torch.cuda.stream(self.side):
            seen = self._prepare(step)
            return seen, self.side.record_event()

    def _prepare(self, step: int) -> ImageBatch:
        indices = self.indices(step)
        own = self.distributed.shard(len(indices))
        if self.view == "train":
            draws = crop_draws(np.random.default_rng((*self.seed, 1, step)), len(indices))
            pixels = self.pixels.train_view(indices[own], draws[own])
        else:
            pixels = self.pixels.eval_view(indices[own])
        labels, places = torch.from_numpy(np.stack([self.labels[indices], indices])).to(self.device, non_blocking=True)
        return ImageBatch(pixels, indices, labels, places)
