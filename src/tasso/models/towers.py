"""Forward passes of open_clip's towers without the arithmetic that does not affect the embedding.

- The embedding of an image is read from the class token, so the last block needs a query and an MLP for that token only
  (of twelve blocks, this saves 7 % of the arithmetic).
- Text attention is causal, so padding behind the longest text is cut off.
- Queries, keys and values come from one matrix product; the patch convolution is one matrix product.

Results agree with open_clip's up to rounding. Towers of other architectures are run by open_clip, and so are those with
a module that these passes would not call (attention, blocks, the tower itself) and that is not as open_clip made it:
wrapped, replaced, or with hooks. Modules that are called (MLPs, normalisation) may be anything that treats each token
by itself; in the last block of an image tower they see the class token only, and the last norm of a text tower sees
the end of each text only.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from open_clip import CLIP
from open_clip.transformer import ResidualAttentionBlock, Transformer, VisionTransformer
from torch import Tensor, nn

from tasso.kernels import has_kernels
from tasso.models.blocks import Linear, Operations, Residual, in_autocast, is_original

PROMPT_LENGTHS = (16, 32, 48, 64)  # tokens of texts: with them, attention of all lengths is compiled (see its `PART`)


def embed_images(tower: Any, pixels: Tensor, linear: Linear = F.linear) -> Tensor:
    """Embeddings (B, D), not normalised, of normalised pixels (B, 3, H, W); `linear` multiplies within blocks."""
    if not is_plain_vit(tower):
        features = tower(pixels)
        pooled: Tensor = features[0] if isinstance(features, tuple) else features  # CoCa's tower returns tokens too
        return pooled
    x = _patch_tokens(tower, pixels)
    run = Operations.of(tower.transformer, linear, x.device)
    _, x = run.read_normed(Residual(x), tower.ln_pre)
    residual = run.blocks(tower.transformer, x, queries=1)
    _, token = run.read_normed(residual.select(lambda x: x[:, 0]), tower.ln_post)
    embedding: Tensor = token @ tower.proj
    return embedding


def embed_tokens(model: Any, tokens: Tensor, linear: Linear = F.linear) -> Tensor:
    """Embeddings (N, D), not normalised, of token ids (N, L). L may be shorter than the context length."""
    if not _is_plain_text_tower(model):
        features: Tensor = model.encode_text(tokens)
        return features
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    run = Operations.of(model.transformer, linear, x.device)
    residual = run.blocks(model.transformer, x, causal=True)
    ends = torch.arange(len(tokens), device=tokens.device), _ends(tokens)
    _, end = run.read_normed(residual.select(lambda x: x[ends]), model.ln_final)
    embedding: Tensor = end @ model.text_projection
    return embedding


def without_padding(model: Any, tokens: Tensor) -> Tensor:
    """Token ids (N, context length) up to the end of the longest text, (N, L), if the tower allows it."""
    if not _is_plain_text_tower(model):
        return tokens
    return tokens[:, : int(_ends(tokens).max()) + 1]


def _ends(tokens: Tensor) -> Tensor:
    """Where each text ends, (N,): the end-of-text token has the largest id."""
    return tokens.argmax(-1)


def _patch_tokens(tower: Any, pixels: Tensor) -> Tensor:
    """Class token and patch tokens with positional embeddings, (B, 1 + patches, width).

    Patches do not overlap, so the convolution is one matrix product. Its first row of each image is zero: the class
    token is in the embedding of its position.
    """
    batch, channels, height, width = pixels.shape
    p, q = tower.patch_size
    rows, columns = height // p, width // q
    # Compiled, numbers are cast by the product.
    low = not torch.compiler.is_compiling() and in_autocast(pixels.device)
    dtype = torch.get_autocast_dtype(pixels.device.type) if low else pixels.dtype
    patches = torch.zeros(batch, 1 + rows * columns, channels * p * q, dtype=dtype, device=pixels.device)
    places = patches[:, 1:].view(batch, rows, columns, channels, p, q)
    places.copy_(pixels.view(batch, channels, rows, p, columns, q).permute(0, 2, 4, 1, 3, 5))
    x = F.linear(patches, tower.conv1.weight.flatten(1))
    first, others = tower.positional_embedding.split([1, rows * columns])
    return x + torch.cat([tower.class_embedding + first, others]).to(x.dtype)


def prepare(model: Any, towers: str, precision: torch.dtype) -> None:
    """Compile meanwhile the kernels that the training of these towers will need, if there are any for them."""
    device = model.logit_scale.device
    if precision == torch.float32 or not has_kernels(device):
        return
    from tasso.models.fused import rehearse

    if towers in ("visual", "both") and is_plain_vit(model.visual):
        rehearse(model.visual.transformer, [len(model.visual.positional_embedding)], torch.bfloat16)
    if towers in ("text", "both") and _is_plain_text_tower(model):
        rehearse(model.transformer, PROMPT_LENGTHS, torch.float32, causal=True)


def is_plain_vit(tower: Any) -> bool:
    """Is it run by the forward passes in here?"""
    return bool(
        is_original(tower, VisionTransformer)
        and is_original(tower.conv1, nn.Conv2d)
        and tower.attn_pool is None
        and tower.pool_type == "tok"
        and not tower.output_tokens
        and tower.proj is not None
        and is_original(tower.patch_dropout, nn.Identity)
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
        is_original(transformer, Transformer)
        and len(transformer.resblocks) > 0
        and all(is_original(b, ResidualAttentionBlock) and _is_plain_attention(b.attn) for b in transformer.resblocks)
    )


def _is_plain_attention(attention: Any) -> bool:
    return bool(
        is_original(attention, nn.MultiheadAttention)
        and attention.in_proj_weight is not None
        and attention.in_proj_bias is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
        and not attention.dropout
    )
