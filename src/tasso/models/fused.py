"""The operations of blocks with the kernels of `tasso.kernels`, for bfloat16 on a GPU."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Sequence
from typing import Any, TypeGuard, cast

import torch
import torch.nn.functional as F
from open_clip.transformer import LayerNorm, LayerNormFp32, QuickGELU
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tasso.kernels.attention import attention as attend
from tasso.kernels.attention import fits_attention
from tasso.kernels.gelu import gelu
from tasso.kernels.norm import WIDEST, add_norm
from tasso.models.blocks import LINEAR_LAYERS, Operations, Residual, has_hooks, is_original
from tasso.models.unit import unit


class Fused(Operations):
    """With Triton's kernels: biases are added by the kernel that reads a product, not by the product."""

    def product(self, x: Tensor, weight: Tensor, low: Tensor, bias: Tensor | None) -> Tensor:
        # A frozen weight has no gradient, and its input need not be kept for it.
        if self.raw_linear is not F.linear or weight.dtype != torch.float32 or not weight.requires_grad:
            return super().product(x, weight, low, bias)
        y: Tensor = _Product.apply(x.to(low.dtype), weight, low.detach(), bias)
        return y

    def read_normed(self, residual: Residual, norm: nn.Module) -> tuple[Residual, Tensor]:
        if not self._is_norm(norm):
            return super().read_normed(residual, norm)
        x, update, bias = residual.tokens, residual.update, residual.bias
        if update is not None and update.dtype != torch.bfloat16:  # of a module that is not open_clip's
            x, update, bias = residual.read(), None, None
        total, normed = add_norm(x, update, bias, norm.weight, norm.bias, norm.eps)
        return Residual(total), normed

    def attention(
        self, attention: nn.MultiheadAttention, x: Tensor, queries: int | None = None, causal: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        if not fits_attention(x.shape[2], attention.num_heads):
            return super().attention(attention, x, queries, causal)
        assert attention.in_proj_bias is not None
        bias = self.cast(attention.in_proj_bias).detach()  # its gradient comes from the kernel
        q, kv = self.in_projection(attention, x, bias, queries)
        return self.projected(attention.out_proj, attend(q, kv, attention.in_proj_bias, attention.num_heads, causal))

    def projected(self, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        if not is_original(layer, *LINEAR_LAYERS):
            return super().projected(layer, x)
        return self.linear(x, layer.weight, None), layer.bias  # type: ignore[arg-type,return-value]

    def mlp(self, mlp: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        layers = list(mlp.children())
        usual = is_original(mlp, nn.Sequential) and len(layers) == 3 and is_original(layers[0], *LINEAR_LAYERS)
        if not (usual and layers[0].bias is not None and _is_gelu(layers[1])):
            return super().mlp(mlp, x)
        hidden = self.linear(x, layers[0].weight, None)  # type: ignore[arg-type]
        hidden = gelu(hidden, cast(Tensor, layers[0].bias), quick=isinstance(layers[1], QuickGELU))
        return self.projected(layers[2], hidden)

    def _is_norm(self, norm: nn.Module) -> TypeGuard[nn.LayerNorm]:
        return bool(
            is_original(norm, LayerNorm, LayerNormFp32, nn.LayerNorm)
            and norm.weight is not None
            and norm.bias is not None
            and len(norm.normalized_shape) == 1  # type: ignore[arg-type]
            and norm.normalized_shape[0] <= WIDEST  # type: ignore[index]
        )


class _Product(torch.autograd.Function):
    """x Wᵀ + bias in bfloat16, with the gradient of W in float32: the product that makes it has it anyway."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, low: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, low)
        return F.linear(x, low, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, low = ctx.saved_tensors
        rows = d_y.flatten(0, -2)
        needs_x, needs_weight, _, needs_bias = ctx.needs_input_grad
        d_weight = float32_product(rows.mT, x.flatten(0, -2)) if needs_weight else None
        d_x = (rows @ low).view(x.shape) if needs_x else None
        return d_x, d_weight, None, rows.sum(0) if needs_bias else None


def float32_product(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices in bfloat16, not rounded."""
    assert left.dtype == right.dtype
    if not left.is_cuda:
        return left.float() @ right.float()
    return torch.mm(left, right, out_dtype=torch.float32)


def rehearse(
    transformer: Any, lengths: Sequence[int], dtype: torch.dtype, causal: bool = False
) -> threading.Thread | None:
    """Compile the kernels of a transformer's blocks meanwhile, in a thread: in a first run that takes seconds.

    Args:
        lengths: tokens per sample.
        dtype: of the residual stream.
    """
    if any(map(has_hooks, transformer.resblocks[0].modules())):  # they may count their calls
        return None
    block = copy.deepcopy(transformer.resblocks[0]).requires_grad_(True)

    def attempt() -> None:
        weight = block.attn.out_proj.weight
        # What fails here will fail in training, too.
        with contextlib.suppress(Exception), torch.cuda.device_of(weight):  # type: ignore[no-untyped-call]
            side: torch.cuda.Stream = torch.cuda.Stream(weight.device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(side):
                for length in lengths:
                    use_kernels(block, length, dtype, causal)

    thread = threading.Thread(target=attempt)
    thread.start()
    return thread


def use_kernels(block: Any, length: int, dtype: torch.dtype, causal: bool) -> None:
    """A forward and a backward pass with the kernels that a transformer of such blocks needs."""
    weight = block.attn.out_proj.weight
    with torch.autocast(weight.device.type, torch.bfloat16):
        x = torch.ones(2, length, len(weight), dtype=dtype, device=weight.device, requires_grad=True)
        run = Operations.of(block, F.linear, weight.device)
        residual = Residual(x)
        for queries in (None, None) if causal else (None, None, 1):  # the first has nothing to add
            residual = run.block(block, residual, queries, causal)
        unit(residual.read().float().mean(1)).sum().backward()  # type: ignore[no-untyped-call]


def _is_gelu(module: nn.Module) -> bool:
    return is_original(module, QuickGELU) or (is_original(module, nn.GELU) and module.approximate == "none")
