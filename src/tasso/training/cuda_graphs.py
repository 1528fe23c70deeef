"""A training step recorded once on CUDA and replayed: one launch in the place of thousands.

Small models spend their time on launches, not on arithmetic. A recording does the same kernels in the same order on the
same addresses, so that the numbers are those of the step it was made from. What goes into a step must lie in the same
place each time: batches are copied into the first one's tensors.
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
WARM_UP = 3  # steps that are done as usual first: libraries make their workspaces, the optimiser its state


@dataclass
class Recording:
    """A graph, where it reads its batch, and where it leaves its losses."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    terms: Terms


class RecordedStep:
    """Calls `step(batch, kind)`; from the fourth call of a kind on, replays what it did.

    A step of one kind must do the same operations each time, on batches of one shape, and wait for nothing.
    """

    def __init__(self, step: Callable[[Batch, Kind], Terms]) -> None:
        self.step = step
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.calls: dict[Kind, int] = {}
        self.recordings: dict[Kind, Recording] = {}

    def __call__(self, batch: Batch, kind: Kind) -> Terms:
        if recording := self.recordings.get(kind):
            copy_into(recording.batch, batch)
            recording.graph.replay()
            return {name: term.clone() for name, term in recording.terms.items()}
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] > WARM_UP:
            self.recordings[kind] = self._record(batch, kind)
            return self(batch, kind)
        return self._aside(batch, kind)

    def _aside(self, batch: Batch, kind: Kind) -> Terms:
        """As usual, but on another stream than the default one, which cannot be recorded."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            terms = self.step(batch, kind)
        torch.cuda.current_stream().wait_stream(self.stream)
        return terms

    def _record(self, batch: Batch, kind: Kind) -> Recording:
        static = own_copy(batch)
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread is recorded: others go on reading images meanwhile.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                terms = self.step(static, kind)
        except RuntimeError as error:
            # After this the device's streams and random numbers are in disorder, so it cannot simply go on.
            raise RunError(
                f"the training step cannot be recorded as a CUDA graph, because it waits for the device or computes on "
                f"another one ({str(error).splitlines()[0]}). --cuda-graphs false runs it step by step"
            ) from None
        return Recording(graph, static, terms)

    def close(self) -> None:
        """Let go of the recordings and their memory."""
        self.recordings.clear()


def own_copy(batch: Batch) -> Batch:
    """A batch of the same shape whose tensors nobody else writes to."""

    def fixed(seen: ImageBatch) -> ImageBatch:
        return ImageBatch(seen.pixels.clone(), seen.labels.clone(), seen.indices.clone())

    return Batch(fixed(batch.task), {name: fixed(seen) for name, seen in batch.others.items()})


def copy_into(static: Batch, batch: Batch) -> None:
    """Put a batch where a recording reads it."""
    for target, seen in ((static.task, batch.task), *((static.others[n], seen) for n, seen in batch.others.items())):
        target.pixels.copy_(seen.pixels)
        target.labels.copy_(seen.labels)
        target.indices.copy_(seen.indices)
