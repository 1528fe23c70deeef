"""Which images a step gets. Every choice is a function of (seed, task, stream, step) alone: a resumed run draws
exactly what an uninterrupted one would have drawn, and there is no loader state to save."""

from __future__ import annotations

import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tasso.data.images.pixels import OneSizePixels, Pixels
from tasso.decoding.views import Indices, crop_draws
from tasso.distributed import SINGLE_PROCESS, Distributed

View = Literal["train", "eval"]


@dataclass(frozen=True)
class ImageBatch:
    """Images of one step, on the device.

    Attributes:
        pixels: `(B, 3, H, W)`, normalised; with several processes only the share of this rank.
        labels: `(B,)`, class numbers of all images of the step.
        indices: `(B,)`, their indices in the image set.
    """

    pixels: Tensor
    labels: Tensor
    indices: Tensor

    def chunk(self, number: int, count: int) -> ImageBatch:
        """The number-th of `count` equal parts."""
        size = len(self.labels) // count
        part = slice(number * size, (number + 1) * size)
        return ImageBatch(self.pixels[part], self.labels[part], self.indices[part])


# A batch, and on CUDA the event after which its tensors are filled.
Prefetched = tuple[ImageBatch, torch.cuda.Event | None]


class ShuffledEpochs:
    """Which of `count` things each step gets, `size` at a time; the seed and the step decide."""

    def __init__(self, count: int, size: int, seed: tuple[int, ...], name: str) -> None:
        """`seed`: of the run and the task. `name` tells these draws apart from others."""
        self.count, self.size = count, size
        self.seed = (*seed, zlib.crc32(name.encode()))
        self._permutations: dict[int, Indices] = {}

    def indices(self, step: int) -> Indices:
        """Indices of a step, `(size,)`: shuffled epochs, the incomplete last batch of each left out."""
        count, size = self.count, self.size
        if count >= size:
            epoch, batch = divmod(step, count // size)
            return self._permutation(epoch)[batch * size : (batch + 1) * size]
        # Fewer than a batch holds: batches go through several epochs.
        first, start = divmod(step * size, count)
        epochs = [self._permutation(first + more) for more in range(-(-(start + size) // count))]
        return np.concatenate(epochs)[start : start + size]

    def _permutation(self, epoch: int) -> Indices:
        if epoch not in self._permutations:  # drawn once per epoch; neighbours stay cached for the prefetching
            self._permutations = {other: p for other, p in self._permutations.items() if abs(other - epoch) <= 1}
            self._permutations[epoch] = np.random.default_rng((*self.seed, 0, epoch)).permutation(self.count)
        return self._permutations[epoch]


class Stream:
    """An endless, shuffled sequence of batches from one image set."""

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
        """
        Args:
            name: tells the draws of this stream apart from those of others.
            labels: `(N,)`, one per image.
            seed: of the run and the task.
            view: random crops, or the view of evaluation.
            distributed: with several processes each prepares its share of the pixels.
        """
        self.distributed = distributed
        self.pixels, self.labels, self.batch_size, self.view = pixels, labels, batch_size, view
        self.epochs = ShuffledEpochs(len(pixels), batch_size, seed, name)
        self.device = device
        # Images in memory are ready at once; those on disk are prepared one step ahead.
        in_memory = isinstance(pixels, OneSizePixels) and pixels.stack is not None
        self._worker = None if in_memory else ThreadPoolExecutor(1)
        self._cuda_stream: torch.cuda.Stream | None = None
        if self._worker and device.type == "cuda":  # the next step's copies and crops run beside the training
            self._cuda_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pending: dict[int, Future[Prefetched]] = {}

    def indices(self, step: int) -> Indices:
        """Indices of a step's images, `(B,)`."""
        return self.epochs.indices(step)

    def batch(self, step: int) -> ImageBatch:
        if self._worker is None:
            return self._prepare(step)
        future = self._pending.pop(step, None) or self._worker.submit(self._prefetch, step)
        self._pending = {step + 1: self._worker.submit(self._prefetch, step + 1)}
        batch, ready = future.result()
        if ready is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(ready)
            for tensor in (batch.pixels, batch.labels, batch.indices):
                tensor.record_stream(current)  # else the side stream could reuse their memory before they are read
        return batch

    def close(self) -> None:
        """Stop preparing ahead."""
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)

    def _prefetch(self, step: int) -> Prefetched:
        """Prepare a step on the side stream; the event tells the training stream when it is done."""
        if self._cuda_stream is None:
            return self._prepare(step), None
        with torch.cuda.stream(self._cuda_stream):
            batch = self._prepare(step)
            return batch, self._cuda_stream.record_event()

    def _prepare(self, step: int) -> ImageBatch:
        indices = self.indices(step)
        own = self.distributed.shard(len(indices))
        if self.view == "train":
            draws = crop_draws(np.random.default_rng((*self.epochs.seed, 1, step)), len(indices))
            pixels = self.pixels.train_view(indices[own], draws[own])
        else:
            pixels = self.pixels.eval_view(indices[own])
        # One copy to the device for both.
        both = torch.from_numpy(np.stack([self.labels[indices], indices])).to(self.device, non_blocking=True)
        return ImageBatch(pixels, labels=both[0], indices=both[1])
