"""Weights kept in float32, used in bfloat16: all matrices of a tower are cast by one launch instead of one each.

Autocast makes the same numbers, tensor by tensor in every forward pass, and casts every gradient back on its own. Small
models spend more time on these launches than on arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[nn.Module, Tensor], Tensor]


def run_in(precision: torch.dtype, forward: Forward, module: nn.Module, inputs: Tensor) -> Tensor:
    """`forward(module, inputs)` under autocast, with the module's matrices cast beforehand."""
    weights = {name: weight for name, weight in matrices(module).items() if weight.dtype != precision}
    with torch.autocast(inputs.device.type, dtype=precision):
        if not weights:
            return forward(module, inputs)
        halves = dict(zip(weights, _Cast.apply(precision, *weights.values()), strict=True))
        called = _Called(module, forward)
        features: Tensor = torch.func.functional_call(called, {f"module.{n}": w for n, w in halves.items()}, (inputs,))
        return features


def cast(module: nn.Module, precision: torch.dtype) -> None:
    """Cast the matrices for good: for modules that never learn."""
    for weight in matrices(module).values():
        weight.data = weight.data.to(precision)


def matrices(module: nn.Module) -> dict[str, nn.Parameter]:
    """What autocast would cast: weights and biases of products. Of a whole model, those of its text tower."""
    found: dict[str, nn.Parameter] = {}
    for name, part in module.named_modules():
        if isinstance(part, (nn.Linear, nn.Conv2d, nn.MultiheadAttention)) and not name.startswith("visual."):
            prefix = f"{name}." if name else ""
            found |= {f"{prefix}{key}": weight for key, weight in part.named_parameters(recurse=False)}
    return found


class _Called(nn.Module):
    """A function of a module as that module's own forward pass, so that its weights can be exchanged."""

    def __init__(self, module: nn.Module, function: Forward) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.module, inputs)


class _Cast(torch.autograd.Function):
    """Many tensors in another precision; their gradients come back in the tensors' own."""

    @staticmethod
    def forward(ctx: Any, precision: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that nobody used has no gradient
        ctx.kinds = [weight.dtype for weight in weights]
        return tuple(_cast(weights, [precision] * len(weights)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        cast = _cast([g for g in gradients if g is not None], [ctx.kinds[place] for place in places])
        back: list[Tensor | None] = [None] * len(gradients)
        for place, gradient in zip(places, cast, strict=True):
            back[place] = gradient
        return None, *back


def _cast(tensors: Any, kinds: list[torch.dtype]) -> list[Tensor]:
    cast = [torch.empty_like(tensor, dtype=kind) for tensor, kind in zip(tensors, kinds, strict=True)]
    if cast:
        torch._foreach_copy_(cast, list(tensors))
    return cast
