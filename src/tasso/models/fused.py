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

from tasso.kernels.attention import attention as attend_packed
from tasso.kernels.attention import fits_attention
from tasso.kernels.gelu import gelu
from tasso.kernels.norm import WIDEST, add_norm
from tasso.models.blocks import LINEAR_LAYERS, Operations, Residual, has_hooks, is_original
from tasso.models.unit import unit


class Fused(Operations):
    """With Triton's kernels: biases are added by the kernel that reads a product, not by the product."""

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
        heads = attention.num_heads
        if queries is not None or not fits_attention(x.shape[1], x.shape[2], heads):
            return super().attention(attention, x, queries, causal)
        assert attention.in_proj_weight is not None
        assert attention.in_proj_bias is not None
        bias = self.cast(attention.in_proj_bias).detach()  # its gradient comes from the kernel
        packed = self.raw_linear(x, self.cast(attention.in_proj_weight), bias)
        y = attend_packed(packed, attention.in_proj_bias, heads, causal)
        return self.projected(attention.out_proj, y)

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


def rehearse(
    transformer: Any, lengths: Sequence[int], dtype: torch.dtype, causal: bool = False
) -> threading.Thread | None:
    """Compile the kernels of a transformer's blocks meanwhile, in a thread: in a first run that takes seconds.

    Args:
        lengths: tokens per sample; kernels of attention depend on the next power of two.
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
        for _ in range(2):  # the first has nothing to add
            residual = run.block(block, residual, causal=causal)
        unit(residual.read().float().mean(1)).sum().backward()  # type: ignore[no-untyped-call]


def _is_gelu(module: nn.Module) -> bool:
    return is_original(module, QuickGELU) or (is_original(module, nn.GELU) and module.approximate == "none")
