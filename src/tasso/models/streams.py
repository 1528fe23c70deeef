"""Work on a second stream of a GPU, beside what the main stream does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pending:
    """A tensor that a side stream may still be computing."""

    value: Tensor
    stream: torch.cuda.Stream | None = None

    def wait(self) -> Tensor:
        """The tensor, for use on the current stream."""
        if self.stream is not None:
            current = torch.cuda.current_stream()
            current.wait_stream(self.stream)
            self.value.record_stream(current)  # else the side stream might write there before this one has read
        return self.value


class SideStream:
    """A stream that begins where the current one is. Gradients of what it computes are computed on it, too."""

    def __init__(self) -> None:
        self.stream: torch.cuda.Stream | None = None

    def run(self, compute: Callable[[], Tensor], device: torch.device) -> Pending:
        """Compute a tensor; on a GPU this overlaps with what is launched before `wait`."""
        if device.type != "cuda":
            return Pending(compute())
        if self.stream is None:
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            return Pending(compute(), self.stream)
