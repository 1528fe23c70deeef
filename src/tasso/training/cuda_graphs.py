"""A training step captured once as a CUDA graph and replayed: one launch instead of thousands.

Small models spend their time on kernel launches, not on arithmetic. A replay runs the same kernels in the same order on
the same addresses, so its results are those of the captured step on new inputs. The inputs of a step must be at the
same addresses each time: batches are copied into the tensors of the captured one. Python does not run in a replay, so a
method must allow this with `cuda_graphs = True`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tasso.data.images import ImageBatch
from tasso.errors import RunError
from tasso.methods import Batch

Terms = dict[str, Tensor]
Kind = frozenset[str]  # names of the groups that rest in a step
WARM_UP = 3  # eager steps before the capture: libraries allocate workspaces, the optimiser its state


@dataclass
class Capture:
    """A graph, the batch that it reads, and the losses that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    terms: Terms


class CapturedStep:
    """Calls `step(batch, kind)`; from the fourth call of a kind on, replays what it did.

    A step of one kind must do the same operations each time, on batches of one shape, and must not wait for the device.
    """

    def __init__(self, step: Callable[[Batch, Kind], Terms]) -> None:
        self.step = step
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.calls: dict[Kind, int] = {}
        self.captures: dict[Kind, Capture] = {}

    def __call__(self, batch: Batch, kind: Kind) -> Terms:
        if capture := self.captures.get(kind):
            copy_into(capture.batch, batch)
            capture.graph.replay()
            return {name: term.clone() for name, term in capture.terms.items()}
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] > WARM_UP:
            self.captures[kind] = self._capture(batch, kind)
            return self(batch, kind)
        return self._eager(batch, kind)

    def _eager(self, batch: Batch, kind: Kind) -> Terms:
        """A usual step, on a side stream: the default stream cannot be captured."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            terms = self.step(batch, kind)
        torch.cuda.current_stream().wait_stream(self.stream)
        return terms

    def _capture(self, batch: Batch, kind: Kind) -> Capture:
        static = own_copy(batch)
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread is captured: others go on reading images meanwhile.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                terms = self.step(static, kind)
        except RuntimeError as error:
            # After this the device's streams and random state are undefined, so the run cannot continue.
            raise RunError(
                f"the training step cannot be captured as a CUDA graph, because it waits for the device or computes on "
                f"another one ({str(error).splitlines()[0]}). --cuda-graphs false runs it step by step"
            ) from None
        return Capture(graph, static, terms)

    def close(self) -> None:
        """Release the graphs and their memory."""
        self.captures.clear()


def own_copy(batch: Batch) -> Batch:
    """A batch of the same shape whose tensors nobody else writes to."""

    def static(images: ImageBatch) -> ImageBatch:
        return ImageBatch(images.pixels.clone(), images.labels.clone(), images.indices.clone())

    others = {name: static(images) for name, images in batch.others.items()}
    return Batch(static(batch.task), others, {name: tensor.clone() for name, tensor in batch.inputs.items()})


def copy_into(static: Batch, batch: Batch) -> None:
    """Copy a batch to where a capture reads it."""
    pairs = [(static.task, batch.task), *((static.others[name], images) for name, images in batch.others.items())]
    for target, images in pairs:
        target.pixels.copy_(images.pixels)
        target.labels.copy_(images.labels)
        target.indices.copy_(images.indices)
    for name, tensor in batch.inputs.items():
        static.inputs[name].copy_(tensor)
