"""Residual attention blocks of open_clip's transformers, and what computes them: PyTorch's operations, or on a GPU in
bfloat16 those of `fused.py`.

Modules of a block that are not as open_clip made them (hooked, wrapped, replaced) are called as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.utils.checkpoint import checkpoint

from tasso.kernels import has_kernels

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # input (…, in), weight (out, in), bias (out,)
Cast = Callable[[Tensor], Tensor]
LINEAR_LAYERS = (nn.Linear, NonDynamicallyQuantizableLinear)


@dataclass(frozen=True)
class Residual:
    """Residual stream of a transformer: tokens (B, L, width), and what is added to them when they are read next."""

    tokens: Tensor
    update: Tensor | None = None
    bias: Tensor | None = None  # (width,) of the update

    def read(self) -> Tensor:
        """The sum."""
        if self.update is None:
            return self.tokens
        if self.bias is None:
            return self.tokens + self.update
        # Rounded once, as by the kernel: a student whose blocks are checkpointed has the bits of its teacher.
        return (self.tokens.float() + (self.update.float() + self.bias.bfloat16())).to(self.tokens.dtype)

    def select(self, choose: Callable[[Tensor], Tensor]) -> Residual:
        """The tokens that `choose` takes of (B, L, width)."""
        return replace(self, tokens=choose(self.tokens), update=None if self.update is None else choose(self.update))


class Operations:
    """How the blocks of one transformer are computed in one forward pass."""

    def __init__(self, linear: Linear = F.linear, cast: Cast = lambda weight: weight) -> None:
        self.raw_linear, self.cast = linear, cast

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """A linear layer with its weights cast."""
        return self.product(x, weight, self.cast(weight), bias if bias is None else self.cast(bias))

    def product(self, x: Tensor, weight: Tensor, low: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + bias, of a weight as it is and cast; the bias is cast."""
        return self.raw_linear(x, low, bias)

    @staticmethod
    def of(transformer: Any, linear: Linear, device: torch.device) -> Operations:
        """The fastest for this device and the precision of autocast; `linear` multiplies."""
        # The compiler casts and joins operations itself. Asked first: it cannot trace the questions about autocast.
        if torch.compiler.is_compiling() or not in_autocast(device):
            return Operations(linear)
        dtype = torch.get_autocast_dtype(device.type)
        cast = cast_at_once(transformer, dtype)
        if dtype != torch.bfloat16 or not has_kernels(device):
            return Operations(linear, cast)
        from tasso.models.fused import Fused

        return Fused(linear, cast)

    def blocks(self, transformer: Any, x: Tensor, queries: int | None = None, causal: bool = False) -> Residual:
        """All blocks on tokens (B, L, width); with `queries`, the last computes only the first so many."""
        checkpoints = transformer.grad_checkpointing and torch.is_grad_enabled()
        residual = Residual(x)
        last = len(transformer.resblocks) - 1
        for number, block in enumerate(transformer.resblocks):
            wanted = queries if number == last else None
            if checkpoints:  # keeps the input only; the block runs once more in the backward pass
                tokens = checkpoint(self.whole_block, block, residual.tokens, wanted, causal, use_reentrant=False)
                residual = Residual(tokens)
            else:
                residual = self.block(block, residual, wanted, causal)
        return residual

    def whole_block(self, block: Any, x: Tensor, queries: int | None, causal: bool) -> Tensor:
        """One block on tokens (B, L, width), its output added up."""
        return self.block(block, Residual(x), queries, causal).read()

    def block(self, block: Any, residual: Residual, queries: int | None = None, causal: bool = False) -> Residual:
        """One residual attention block."""
        residual, normed = self.read_normed(residual, block.ln_1)
        update = self.attention(block.attn, normed, queries, causal)
        if queries is not None:
            residual = Residual(residual.tokens[:, :queries])
        residual = self.add(residual, block.ls_1, *update)
        residual, normed = self.read_normed(residual, block.ln_2)
        return self.add(residual, block.ls_2, *self.mlp(block.mlp, normed))

    def read_normed(self, residual: Residual, norm: nn.Module) -> tuple[Residual, Tensor]:
        """The residual with its update added, and its normalised tokens."""
        x = residual.read()
        return Residual(x), norm(x)

    def add(self, residual: Residual, scale: nn.Module, update: Tensor, bias: Tensor | None) -> Residual:
        """The residual with an update, which a module scales."""
        if is_original(scale, nn.Identity):
            return replace(residual, update=update, bias=bias)
        return replace(residual, update=scale(update if bias is None else update + bias.to(update.dtype)))

    def attention(
        self, attention: nn.MultiheadAttention, x: Tensor, queries: int | None = None, causal: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Self-attention of tokens (B, L, width): (B, queries or L, width), and a bias that is still to be added."""
        width = x.shape[2]
        of_heads = (attention.num_heads, width // attention.num_heads)
        assert attention.in_proj_bias is not None
        first, second = self.in_projection(attention, x, self.cast(attention.in_proj_bias), queries)
        if second is None:
            q, k, v = first.view(*first.shape[:2], 3, *of_heads).permute(2, 0, 3, 1, 4)
        else:
            q = first.view(*first.shape[:2], *of_heads).transpose(1, 2)
            k, v = second.view(*second.shape[:2], 2, *of_heads).permute(2, 0, 3, 1, 4)
        y = attend(q, k, v, causal)
        return self.projected(attention.out_proj, y.transpose(1, 2).flatten(2))

    def in_projection(
        self, attention: nn.MultiheadAttention, x: Tensor, bias: Tensor, queries: int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Queries, keys and values of tokens (B, L, width) in one, (B, L, 3 width); or the first so many queries, and
        keys and values, (B, L, 2 width)."""
        assert attention.in_proj_weight is not None
        packed = (attention.in_proj_weight, self.cast(attention.in_proj_weight), bias)
        if queries is None:
            return self.product(x, *packed), None
        of_q, of_kv = zip(*(torch.split(tensor, [x.shape[2], 2 * x.shape[2]]) for tensor in packed), strict=True)
        return self.product(x[:, :queries], *of_q), self.product(x, *of_kv)

    def projected(self, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The output of the last layer of attention or of an MLP, and a bias that is still to be added."""
        return self.apply(layer, x), None

    def mlp(self, mlp: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """An MLP on tokens, and a bias that is still to be added."""
        return self.apply(mlp, x), None

    def apply(self, module: nn.Module, x: Tensor) -> Tensor:
        """A module of a block, whose linear layers are multiplied by `linear` if they are as open_clip made them."""
        if is_original(module, nn.Sequential):
            for child in module.children():
                x = self.apply(child, x)
            return x
        if is_original(module, *LINEAR_LAYERS):
            return self.linear(x, module.weight, module.bias)  # type: ignore[arg-type]
        y: Tensor = module(x)
        return y


def in_autocast(device: torch.device) -> bool:
    """Does autocast choose dtypes on this device (which may be the meta device)?"""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def cast_at_once(transformer: Any, dtype: torch.dtype) -> Cast:
    """What gives a weight of the blocks in autocast's dtype: all of them are cast by one operation.

    Autocast would cast each by one of its own, and each gradient back: a tenth of a small model's operations.
    """
    layers = [module for module in transformer.modules() if isinstance(module, (nn.Linear, nn.MultiheadAttention))]
    weights = [p for layer in layers for p in layer.parameters(recurse=False) if p.dtype == torch.float32]
    trained, frozen = ([p for p in weights if p.requires_grad == wanted] for wanted in (True, False))
    cast: dict[Tensor, Tensor] = dict(zip(frozen, _cast(frozen, dtype), strict=True))
    if trained:
        cast |= zip(trained, _Cast.apply(dtype, *trained), strict=True)
    return lambda weight: cast.get(weight, weight)  # weights of a teacher have been cast before


class _Cast(torch.autograd.Function):
    """Tensors in another dtype; their gradients in float32."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # what is not used has no gradient
        return tuple(_cast(tensors, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found = iter(_cast([gradient for gradient in gradients if gradient is not None], torch.float32))
        return None, *(None if gradient is None else next(found) for gradient in gradients)


def _cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    if not tensors:
        return []
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))  # one launch on a GPU
    return copies


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Attention of queries (B, heads, Q, width) to keys and values (B, heads, L, width); returns as many as queries.

    On a CPU in bfloat16 it is two products and a softmax: PyTorch's fused kernels take more than twice as long there
    in float32, and longer still in bfloat16.
    """
    if q.dtype != torch.bfloat16 or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype).triu(1)
    return scores.softmax(-1).bfloat16() @ v


def is_original(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Is it of one of these very classes (parametrised modules are not), with nothing hooked or put in its place?"""
    return type(module) in kinds and not has_hooks(module) and "forward" not in module.__dict__


def has_hooks(module: nn.Module) -> bool:
    """Is anything called before or after the module, forward or backward?"""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)
