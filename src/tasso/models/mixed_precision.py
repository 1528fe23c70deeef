"""Mixed precision: float32 weights, bfloat16 arithmetic, with all weights of a tower cast in one launch.

Autocast casts the same weights to the same values, but one by one in every forward pass, and casts every gradient back
one by one. Small models spend more time on these launches than on arithmetic.

To use plain autocast instead: `autocast_forward` becomes `with torch.autocast(...): return forward(module, inputs)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[nn.Module, Tensor], Tensor]


def autocast_forward(forward: Forward, module: nn.Module, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """`forward(module, inputs)` under autocast, with the module's weights cast beforehand."""
    weights = {name: weight for name, weight in autocast_weights(module).items() if weight.dtype != dtype}
    with torch.autocast(inputs.device.type, dtype=dtype):
        if not weights:
            return forward(module, inputs)
        cast = zip(weights, _Cast.apply(dtype, *weights.values()), strict=True)
        wrapper = _Wrapper(module, forward)
        features: Tensor = torch.func.functional_call(wrapper, {f"module.{n}": w for n, w in cast}, (inputs,))
        return features


def cast_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast in place the weights that autocast would cast: for modules that are never trained."""
    for weight in autocast_weights(module).values():
        weight.data = weight.data.to(dtype)


def autocast_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    """Weights and biases that autocast casts: of linear, convolution and attention layers.

    Of a whole CLIP model only those of the text tower, since the image tower is run on its own.
    """
    found: dict[str, nn.Parameter] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d, nn.MultiheadAttention)) and not name.startswith("visual."):
            prefix = f"{name}." if name else ""
            found |= {f"{prefix}{key}": weight for key, weight in layer.named_parameters(recurse=False)}
    return found


class _Wrapper(nn.Module):
    """A function of a module as a forward pass, so that `functional_call` can replace the module's weights."""

    def __init__(self, module: nn.Module, function: Forward) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.module, inputs)


class _Cast(torch.autograd.Function):
    """Cast many tensors at once; gradients are cast back to the tensors' own dtypes."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # an unused weight has no gradient
        ctx.dtypes = [weight.dtype for weight in weights]
        return tuple(_cast(weights, [dtype] * len(weights)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        present = {index: gradient for index, gradient in enumerate(gradients) if gradient is not None}
        cast = _cast(list(present.values()), [ctx.dtypes[index] for index in present])
        result: list[Tensor | None] = [None] * len(gradients)
        for index, gradient in zip(present, cast, strict=True):
            result[index] = gradient
        return None, *result


def _cast(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    cast = [torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
    if cast:
        torch._foreach_copy_(cast, list(tensors))
    return cast
