"""Which images a step gets. Every choice is a function of (seed, task, stream, step) alone: a resumed run draws
exactly what an uninterrupted one would have drawn, and there is no loader state to save."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
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


# What decides the images of a step: `labels_indices` (2, B), and `spans` that views show of them, or their `pixels`.
Drawn = Mapping[str, Tensor]

# What was drawn, and on CUDA the event after which its tensors are filled.
Prefetched = tuple[Drawn, torch.cuda.Event | None]


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
        # Views of images in memory are computed when needed; images on disk are prepared one step ahead.
        self._in_memory: OneSizePixels | None = None
        if isinstance(pixels, OneSizePixels) and pixels.stack is not None:
            self._in_memory = copy(pixels)  # keeps them where a captured step reads them
        self._worker = None if self._in_memory is not None else ThreadPoolExecutor(1)
        self._cuda_stream: torch.cuda.Stream | None = None
        if self._worker and device.type == "cuda":  # the next step's copies and crops run beside the training
            self._cuda_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pending: dict[int, Future[Prefetched]] = {}

    def indices(self, step: int) -> Indices:
        """Indices of a step's images, `(B,)`."""
        return self.epochs.indices(step)

    def batch(self, step: int) -> ImageBatch:
        """The images of a step."""
        return self.images(self.draw(step))

    def draw(self, step: int) -> Drawn:
        """What decides the images of a step. Of images in memory these are a few numbers, on the host."""
        if self._worker is None:
            return self._numbers(step, self.indices(step))
        future = self._pending.pop(step, None) or self._worker.submit(self._prefetch, step)
        self._pending = {step + 1: self._worker.submit(self._prefetch, step + 1)}
        drawn, ready = future.result()
        if ready is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(ready)
            for tensor in drawn.values():
                tensor.record_stream(current)  # else the side stream could reuse their memory before they are read
        return drawn

    def images(self, drawn: Drawn) -> ImageBatch:
        """The images that were drawn. If what was drawn is on the device, a CUDA graph can contain this."""
        labels, indices = drawn["labels_indices"].to(self.device, non_blocking=True)
        pixels = drawn.get("pixels")
        if pixels is None:
            assert self._in_memory is not None
            pixels = self._in_memory.view(indices[self._own(indices)], drawn.get("spans"))
        return ImageBatch(pixels, labels, indices)

    def close(self) -> None:
        """Stop preparing ahead."""
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)

    def _own(self, indices: Indices | Tensor) -> slice:
        """Those of a step that this rank prepares."""
        return self.distributed.shard(len(indices))

    def _numbers(self, step: int, indices: Indices) -> Drawn:
        """Labels and indices, and spans of images in memory."""
        drawn = {"labels_indices": torch.from_numpy(np.stack([self.labels[indices], indices]))}
        if self._in_memory is not None:
            spans = self._in_memory.spans(self._crop_draws(step, indices) if self.view == "train" else None)
            if spans is not None:
                drawn["spans"] = spans
        return drawn

    def _crop_draws(self, step: int, indices: Indices) -> npt.NDArray[np.float64]:
        """Of the images that this rank prepares."""
        draws = crop_draws(np.random.default_rng((*self.epochs.seed, 1, step)), len(indices))
        return draws[self._own(indices)]

    def _prefetch(self, step: int) -> Prefetched:
        """Prepare a step on the side stream; the event tells the training stream when it is done."""
        if self._cuda_stream is None:
            return self._prepare(step), None
        with torch.cuda.stream(self._cuda_stream):
            drawn = self._prepare(step)
            return drawn, self._cuda_stream.record_event()

    def _prepare(self, step: int) -> Drawn:
        """A step of images that are not in memory: their pixels, on the device."""
        indices = self.indices(step)
        own = indices[self._own(indices)]
        if self.view == "train":
            pixels = self.pixels.train_view(own, self._crop_draws(step, indices))
        else:
            pixels = self.pixels.eval_view(own)
        numbers = self._numbers(step, indices)
        return {**{name: n.to(self.device, non_blocking=True) for name, n in numbers.items()}, "pixels": pixels}
