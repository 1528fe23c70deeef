"""A training step captured once as a CUDA graph and replayed: one launch instead of thousands.

Small models spend their time on kernel launches, not on arithmetic. A replay runs the same kernels in the same order on
the same addresses, so its results are those of the captured step on new inputs. The inputs of a step must be at the
same addresses each time: they are copied into the tensors of the captured one. Python does not run in a replay, so a
method must allow this with `cuda_graphs = True`. Crops of images in memory are part of the step: its inputs are then a
few numbers.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tasso.errors import RunError

Inputs = Mapping[str, Mapping[str, Tensor]]  # by where they come from and by name, on the host or on the device
Terms = dict[str, Tensor]
Kind = frozenset[str]  # names of the groups that rest in a step
SMALL_SHARE = 32  # of a GPU's memory
WARM_UP = 1  # eager steps before the capture: libraries allocate workspaces, the optimiser its state


@dataclass
class Capture:
    """A graph, the inputs that it reads, and the losses that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    terms: Terms


class CapturedStep:
    """Calls `step(inputs, kind)`; from the second call of a kind on, replays what it does.

    A step of one kind must do the same operations each time, on inputs of one shape, and must not wait for the device.
    """

    def __init__(self, step: Callable[[Inputs, Kind], Terms], device: torch.device) -> None:
        self.step, self.device = step, device
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.calls: dict[Kind, int] = {}
        self.captures: dict[Kind, Capture] = {}

    def __call__(self, inputs: Inputs, kind: Kind) -> Terms:
        if capture := self.captures.get(kind):
            copy_into(capture.inputs, inputs)
            capture.graph.replay()
            return {name: term.clone() for name, term in capture.terms.items()}
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] > WARM_UP:
            self.captures[kind] = self._capture(inputs, kind)
            return self(inputs, kind)
        return self._eager(inputs, kind)

    def _eager(self, inputs: Inputs, kind: Kind) -> Terms:
        """A usual step, on a side stream: the default stream cannot be captured."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            terms = self.step(inputs, kind)
        torch.cuda.current_stream().wait_stream(self.stream)
        return terms

    def _capture(self, inputs: Inputs, kind: Kind) -> Capture:
        static = own_copy(inputs, self.device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        # A graph cannot use memory that is cached for other tensors. `torch.cuda.graph` always gives it back, which
        # takes a third of a second per task; it is not needed where little is cached and as much is free.
        free, total = torch.cuda.mem_get_info(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        if cached > min(free, total // SMALL_SHARE):
            torch.cuda.empty_cache()
        collects = gc.isenabled()
        gc.disable()  # what it would free may belong to other graphs
        try:
            # Only this thread is captured: others go on reading images meanwhile.
            with torch.cuda.stream(self.stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    terms = self.step(static, kind)
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # the capture fails for the same reason
                        graph.capture_end()
                    raise
                graph.capture_end()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # After this the device's streams and random state are undefined, so the run cannot continue.
            raise RunError(
                f"the training step cannot be captured as a CUDA graph, because it waits for the device or computes on "
                f"another one ({str(error).splitlines()[0]}). --no-cuda-graphs runs it step by step"
            ) from None
        finally:
            if collects:
                gc.enable()
        return Capture(graph, static, terms)

    def close(self) -> None:
        """Release the graphs and their memory."""
        self.captures.clear()


def own_copy(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs of the same shapes on the device, whose tensors nobody else writes to."""
    return {
        source: {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}
        for source, tensors in inputs.items()
    }


def copy_into(static: Inputs, inputs: Inputs) -> None:
    """Copy inputs to where a capture reads them."""
    for source, tensors in inputs.items():
        for name, tensor in tensors.items():
            static[source][name].copy_(tensor, non_blocking=True)
