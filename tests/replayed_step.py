"""A CUDA graph on the CPU: the tensor operations of one step are recorded and repeated, its Python is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tasso.training.cuda_graphs import WARM_UP, Inputs, Kind, Terms, copy_into, own_copy
from tasso.training.engine import Training

# Operations that read a value back from the device; CUDA refuses them while a graph is captured.
READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default}


class Recorder(TorchDispatchMode):
    """Records every operation, the backward pass and the optimiser included."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise RuntimeError(f"{func} waits for the device, which a CUDA graph cannot")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """The same operations on the same tensors, which have other values by now."""
        for func, args, kwargs, before in self.calls:
            inputs = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
            result = func(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(result), strict=True):
                # Views and in-place operations have written to the recorded tensor already.
                if isinstance(old, Tensor) and old.untyped_storage().data_ptr() not in inputs:
                    old.copy_(new)


def use_tensor_rates(training: Training) -> None:
    """Learning rates as captured steps have them: tensors in float32."""
    for optimizer in training.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"])


class ReplayedStep:
    """Takes the place of `CapturedStep`: a few eager steps of each kind, then one that is recorded and replayed."""

    def __init__(self, training: Training) -> None:
        self.step, self.device = training._compute, training.clip.device
        self.calls: dict[Kind, int] = {}
        self.recorded: dict[Kind, tuple[Recorder, Inputs, Terms]] = {}

    def __call__(self, inputs: Inputs, kind: Kind) -> Terms:
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] <= WARM_UP:
            return self.step(inputs, kind)
        if kind in self.recorded:
            recorder, static, terms = self.recorded[kind]
            copy_into(static, inputs)
            with torch.no_grad():
                recorder.replay()
        else:
            recorder, static = Recorder(), own_copy(inputs, self.device)
            with recorder:
                terms = self.step(static, kind)
            self.recorded[kind] = recorder, static, terms
        return {name: term.clone() for name, term in terms.items()}

    def close(self) -> None:
        self.recorded.clear()
