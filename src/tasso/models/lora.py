"""LoRA: matrices are trained through low-rank updates, W = W₀ + α/r · B A with A (r, in) and B (out, r).

The model always holds W itself, so forward passes, methods, checkpoints and exports know nothing of factors. The
gradient of W becomes those of A and B as soon as it is there, and is dropped; after each optimiser step, W moves by
what B A has moved. This is the arithmetic of LoRA in another order, and needs neither a second copy of W nor the
gradients of all W at once. It saves their memory and the optimiser's, not time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

PACKED = ("in_proj_weight", "qkv.weight")  # queries, keys and values, each a matrix of its own


class Factors(NamedTuple):
    """Of one matrix (out, in): A (r, in) and B (out, r)."""

    A: nn.Parameter
    B: nn.Parameter


class LowRank:
    """Fresh factors of weights, which get gradients, until `close`. Without weights it does nothing."""

    def __init__(self, weights: Mapping[str, nn.Parameter], rank: int, alpha: float) -> None:
        self.scale = alpha / rank
        self.factors = {weight: _draw(name, weight, rank) for name, weight in weights.items()}
        self._hooks = [_hooked(weight, partial(_project, found, self.scale)) for weight, found in self.factors.items()]

    def trained(self, named: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        """What is optimised instead of these parameters: the factors of those that have some."""
        trained: dict[str, nn.Parameter] = {}
        for name, parameter in named.items():
            if parameter not in self.factors:
                trained[name] = parameter
            for part, (A, B) in enumerate(self.factors.get(parameter, ())):
                trained |= {f"{name}.{part}.A": A, f"{name}.{part}.B": B}
        return trained

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Around an optimiser step: moves the weights as their factors move in here."""
        before = [[(A.detach().clone(), B.detach().clone()) for A, B in found] for found in self.factors.values()]
        yield
        with torch.no_grad():
            for (weight, found), old in zip(self.factors.items(), before, strict=True):
                for matrix, (A, B), (A0, B0) in zip(_matrices(weight, len(found)), found, old, strict=True):
                    matrix.add_(B @ A - B0 @ A0, alpha=self.scale)

    def close(self) -> None:
        """Leave the weights as they are, as plain weights."""
        for hook in self._hooks:
            hook.remove()
        self.factors = {}


def _draw(name: str, weight: nn.Parameter, rank: int) -> list[Factors]:
    """A random, B zero. Drawn on the CPU, so that a seed means the same on every device."""
    drawn = []
    for matrix in _matrices(weight, 3 if name.endswith(PACKED) else 1):
        rows, columns = matrix.shape
        A = torch.empty(rank, columns, dtype=matrix.dtype).uniform_(-(columns**-0.5), columns**-0.5)
        drawn.append(Factors(nn.Parameter(A.to(matrix.device)), nn.Parameter(matrix.new_zeros(rows, rank))))
    return drawn


def _matrices(weight: nn.Parameter, count: int) -> tuple[Tensor, ...]:
    """Views of a weight as `count` matrices (out, in); a convolution has all of its inputs in one row."""
    return weight.detach().view(len(weight), -1).chunk(count)


def _hooked(weight: nn.Parameter, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call a hook with the weight whenever its gradient has been added up."""
    handle: RemovableHandle = weight.requires_grad_().register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
    return handle


def _project(found: list[Factors], scale: float, weight: Tensor) -> None:
    """Turn the gradient of a weight into those of its factors."""
    assert weight.grad is not None
    gradients = weight.grad.reshape(len(weight), -1).chunk(len(found))
    weight.grad = None
    with torch.no_grad():
        for (A, B), gradient in zip(found, gradients, strict=True):
            for factor, own in ((A, B.mT @ gradient), (B, gradient @ A.mT)):
                factor.grad = scale * own if factor.grad is None else factor.grad.add_(own, alpha=scale)
