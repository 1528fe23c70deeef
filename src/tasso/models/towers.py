"""Forward passes of open_clip's towers without the arithmetic that does not affect the embedding.

- The embedding of an image is read from the class token, so the last block needs a query and an MLP for that token only
  (of twelve blocks, this saves 7 % of the arithmetic).
- Text attention is causal, so padding behind the longest text is cut off.
- Queries, keys and values come from one matrix product; the patch convolution is one matrix product.

Results agree with open_clip's up to rounding. Towers of other architectures are run by open_clip, and so are those with
a module that these passes would not call (attention, blocks, the tower itself) and that is not as open_clip made it:
wrapped, replaced, or with hooks. Modules that are called (MLPs, normalisation) may be anything that treats each token
by itself; in the last block of an image tower they see the class token only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from open_clip import CLIP
from open_clip.transformer import ResidualAttentionBlock, Transformer, VisionTransformer, text_global_pool
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.utils.checkpoint import checkpoint

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # input (…, in), weight (out, in), bias (out,)


def embed_images(tower: Any, pixels: Tensor, linear: Linear = F.linear) -> Tensor:
    """Embeddings (B, D), not normalised, of normalised pixels (B, 3, H, W); `linear` multiplies within blocks."""
    if not is_plain_vit(tower):
        features = tower(pixels)
        pooled: Tensor = features[0] if isinstance(features, tuple) else features  # CoCa's tower returns tokens too
        return pooled
    x = tower.ln_pre(_patch_tokens(tower, pixels))
    run = _block_runner(tower.transformer, linear)
    *blocks, last = tower.transformer.resblocks
    for block in blocks:
        x = run(block, x)
    x = run(last, x, queries=1)
    embedding: Tensor = tower.ln_post(x[:, 0]) @ tower.proj
    return embedding


def embed_tokens(model: Any, tokens: Tensor, linear: Linear = F.linear) -> Tensor:
    """Embeddings (N, D), not normalised, of token ids (N, L). L may be shorter than the context length."""
    if not _is_plain_text_tower(model):
        features: Tensor = model.encode_text(tokens)
        return features
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    run = _block_runner(model.transformer, linear)
    for block in model.transformer.resblocks:
        x = run(block, x, causal=True)
    x = text_global_pool(model.ln_final(x), tokens, model.text_pool_type, getattr(model, "text_eos_id", None))
    embedding: Tensor = x @ model.text_projection
    return embedding


def without_padding(model: Any, tokens: Tensor) -> Tensor:
    """Token ids (N, context length) up to the end of the longest text, (N, L), if the tower allows it."""
    if not _is_plain_text_tower(model):
        return tokens
    return tokens[:, : int(tokens.argmax(-1).max()) + 1]  # the end-of-text token has the largest id


def _patch_tokens(tower: Any, pixels: Tensor) -> Tensor:
    """Class token and patch tokens with positional embeddings, (B, 1 + patches, width).

    Patches do not overlap, so the convolution is one matrix product.
    """
    batch, channels, height, width = pixels.shape
    p, q = tower.patch_size
    patches = pixels.view(batch, channels, height // p, p, width // q, q).permute(0, 2, 4, 1, 3, 5)
    x = F.linear(patches.reshape(batch, -1, channels * p * q), tower.conv1.weight.flatten(1))
    positions = tower.positional_embedding.to(x.dtype)
    class_token = (tower.class_embedding.to(x.dtype) + positions[:1]).expand(batch, -1, -1)
    return torch.cat([class_token, x + positions[1:]], dim=1)


def _block_runner(transformer: Any, linear: Linear) -> Callable[..., Tensor]:
    """`run_block`; with checkpointing it keeps its input only, and runs once more in the backward pass."""
    run = partial(run_block, linear=_casting_at_once(transformer, linear))
    checkpoints = transformer.grad_checkpointing and torch.is_grad_enabled()
    return partial(checkpoint, run, use_reentrant=False) if checkpoints else run


def _casting_at_once(transformer: Any, linear: Linear) -> Linear:
    """`linear` with all weights of the blocks cast to autocast's dtype by one operation.

    Autocast would cast each by one of its own, and each gradient back: a tenth of a small model's operations.
    """
    kind = next(transformer.parameters()).device.type
    enabled = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not on the meta device
    if not enabled or torch.compiler.is_compiling():  # the compiler does so itself
        return linear
    layers = [module for module in transformer.modules() if isinstance(module, (nn.Linear, nn.MultiheadAttention))]
    weights = [p for layer in layers for p in layer.parameters(recurse=False) if p.dtype == torch.float32]
    if not weights:  # those of a teacher have been cast
        return linear
    cast: dict[Tensor, Tensor] = dict(zip(weights, _Cast.apply(torch.get_autocast_dtype(kind), *weights), strict=True))

    def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return linear(x, cast.get(weight, weight), bias if bias is None else cast.get(bias, bias))

    return multiply


class _Cast(torch.autograd.Function):
    """Tensors in another dtype; their gradients in float32."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cast(tensors, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        found = iter(_cast([gradient for gradient in gradients if gradient is not None], torch.float32))
        return None, *(None if gradient is None else next(found) for gradient in gradients)


def _cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))  # one launch on a GPU
    return copies


def run_block(
    block: Any, x: Tensor, queries: int | None = None, causal: bool = False, linear: Linear = F.linear
) -> Tensor:
    """A residual attention block on tokens (B, L, width); with `queries`, only the first so many are computed."""
    residual = x if queries is None else x[:, :queries]
    x = residual + block.ls_1(self_attention(block.attn, block.ln_1(x), queries, causal, linear))
    update: Tensor = block.ls_2(_apply(block.mlp, block.ln_2(x), linear))
    return x + update


def self_attention(
    attention: nn.MultiheadAttention,
    x: Tensor,
    queries: int | None = None,
    causal: bool = False,
    linear: Linear = F.linear,
) -> Tensor:
    """Self-attention of tokens (B, L, width); returns (B, queries or L, width)."""
    batch, length, width = x.shape
    heads, weight, bias = attention.num_heads, attention.in_proj_weight, attention.in_proj_bias
    if queries is None:
        q, k, v = linear(x, weight, bias).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    else:
        q = linear(x[:, :queries], weight[:width], bias[:width]).view(batch, queries, heads, -1).transpose(1, 2)
        k, v = linear(x, weight[width:], bias[width:]).view(batch, length, 2, heads, -1).permute(2, 0, 3, 1, 4)
    y = attend(q, k, v, causal)
    return _apply(attention.out_proj, y.transpose(1, 2).reshape(batch, -1, width), linear)


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Attention of queries (B, heads, Q, width) to keys and values (B, heads, L, width); returns as many as queries.

    On a CPU in float32: PyTorch's kernels for bfloat16 take four times as long there in the backward pass.
    """
    if q.dtype == torch.bfloat16 and q.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
        return y.bfloat16()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _apply(module: nn.Module, x: Tensor, linear: Linear) -> Tensor:
    """A module of a block, whose linear layers are multiplied by `linear` if they are as open_clip made them."""
    if _is_original(module, nn.Sequential):
        for child in module.children():
            x = _apply(child, x, linear)
        return x
    if _is_original(module, nn.Linear) or _is_original(module, NonDynamicallyQuantizableLinear):
        return linear(x, module.weight, module.bias)  # type: ignore[arg-type]
    y: Tensor = module(x)
    return y


def is_plain_vit(tower: Any) -> bool:
    """Is it run by the forward passes in here?"""
    return bool(
        _is_original(tower, VisionTransformer)
        and _is_original(tower.conv1, nn.Conv2d)
        and tower.attn_pool is None
        and tower.pool_type == "tok"
        and not tower.output_tokens
        and tower.proj is not None
        and _is_original(tower.patch_dropout, nn.Identity)
        and _has_plain_blocks(tower.transformer)
    )


def repeats_itself(tower: Any) -> bool:
    """Is it run by the forward passes in here, with nothing in it that is random or counts its calls?"""

    def varies(module: Any) -> bool:
        hooks = module._forward_hooks or module._forward_pre_hooks
        counts = getattr(module, "running_mean", None) is not None
        return bool(hooks or counts or getattr(module, "p", 0) or getattr(module, "drop_prob", 0))

    plain = is_plain_vit(tower) or _is_plain_text_tower(tower)
    return plain and not any(map(varies, tower.modules()))


def _is_plain_text_tower(model: Any) -> bool:
    return bool(
        type(model) is CLIP
        and "encode_text" not in model.__dict__
        and model.text_pool_type == "argmax"
        and isinstance(model.text_projection, nn.Parameter)
        and model.attn_mask is not None
        and _has_plain_blocks(model.transformer)
    )


def _has_plain_blocks(transformer: Any) -> bool:
    return bool(
        _is_original(transformer, Transformer)
        and all(_is_original(b, ResidualAttentionBlock) and _is_plain_attention(b.attn) for b in transformer.resblocks)
    )


def _is_plain_attention(attention: Any) -> bool:
    return bool(
        _is_original(attention, nn.MultiheadAttention)
        and attention.in_proj_weight is not None
        and attention.in_proj_bias is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
        and not attention.dropout
    )


def _is_original(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Is it of this very class (parametrised modules are not), with nothing hooked to it or put in its place?"""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and not any(hooks) and "forward" not in module.__dict__
