"""Export as `transformers.CLIPModel` with its processor. Only OpenAI's CLIP architecture can be converted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor

from tasso.errors import ModelError
from tasso.models.clip import Clip

README = """
```python
import torch
from PIL import Image, ImageOps
from transformers import CLIPModel, CLIPProcessor

model = CLIPModel.from_pretrained("FOLDER")
processor = CLIPProcessor.from_pretrained("FOLDER")
image = ImageOps.exif_transpose(Image.open("IMAGE"))
inputs = processor(text=TEXTS, images=image, return_tensors="pt", padding="max_length", truncation=True)
with torch.no_grad():
    outputs = model(**inputs)
image_embedding, text_embeddings = outputs.image_embeds, outputs.text_embeds
probabilities = outputs.logits_per_image.softmax(-1)
```

The activation is `ACTIVATION` in `config.json` (`hidden_act`). Texts are tokenised as in tasso, except that
transformers neither repairs broken Unicode nor resolves HTML entities.
"""

# Keys of open_clip's config that transformers can represent. All others must have one of the values in NEUTRAL.
SUPPORTED = {
    "": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "init_logit_scale"},
    "vision_cfg": {"image_size", "layers", "width", "head_width", "patch_size", "mlp_ratio", "patch_dropout"},
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "tokenizer_kwargs"},
}
NEUTRAL: dict[str, Any] = {
    "pool_type": ("tok", "argmax"), "ls_init_value": (None,), "attentional_pool": (False,), "output_tokens": (False,),
    "global_average_pool": (False,), "no_ln_pre": (False,), "final_ln_after_pool": (False,), "embed_cls": (False,),
    "no_causal_mask": (False,), "proj_bias": (False,), "proj_type": ("linear",), "pos_embed_type": ("learnable",),
    "custom_text": (False,),
}  # fmt: skip


def to_transformers(clip: Clip, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`; returns usage for the README."""
    try:
        from transformers import CLIPConfig, CLIPModel
    except ImportError:
        raise ModelError("export: --to hf needs transformers: pip install 'tasso[hf]'") from None
    _check_supported(clip)
    activation = "quick_gelu" if clip.architecture.get("quick_gelu", False) else "gelu"
    model = CLIPModel(CLIPConfig(**_config(clip, activation)))
    model.load_state_dict(mapped_weights(clip.model.state_dict(), clip))
    with _without_bars():
        model.eval().save_pretrained(temporary)
    _write_processor(clip, temporary)
    return README.replace("ACTIVATION", activation)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Without the progress bar that transformers shows for writing a single file."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _unsupported(clip: Clip, what: str) -> ModelError:
    return ModelError(f"export: {clip.spec} has {what}, which transformers.CLIPModel does not support")


def _check_supported(clip: Clip) -> None:
    """Raise a ModelError that names what transformers.CLIPModel does not support."""
    if type(clip.model) is not open_clip.CLIP:
        raise _unsupported(clip, f"the architecture {type(clip.model).__name__}")
    for part, supported in SUPPORTED.items():
        for key, value in (clip.architecture[part] if part else clip.architecture).items():
            if key not in supported and value not in NEUTRAL.get(key, ()):
                raise _unsupported(clip, f"{part + '.' if part else ''}{key} = {value!r}")
    if not isinstance(clip.architecture["vision_cfg"]["layers"], int):
        raise _unsupported(clip, "a convolutional image tower")
    if not isinstance(clip.tokenizer, open_clip.SimpleTokenizer):
        raise _unsupported(clip, "a tokenizer that is not CLIP's")


def _config(clip: Clip, activation: str) -> dict[str, Any]:
    model: Any = clip.model
    visual: Any = clip.visual
    width, text_width = visual.conv1.out_channels, model.token_embedding.embedding_dim
    common = {"hidden_act": activation, "layer_norm_eps": model.ln_final.eps, "projection_dim": clip.dim}
    block, text_block = visual.transformer.resblocks[0], model.transformer.resblocks[0]
    return {
        "projection_dim": clip.dim,
        "logit_scale_init_value": float(model.logit_scale),
        "vision_config": {
            **common,
            "hidden_size": width,
            "intermediate_size": block.mlp.c_fc.out_features,
            "num_hidden_layers": len(visual.transformer.resblocks),
            "num_attention_heads": block.attn.num_heads,
            "image_size": clip.preprocess.size,
            "patch_size": visual.conv1.kernel_size[0],
        },
        "text_config": {
            **common,
            "vocab_size": model.vocab_size,
            "hidden_size": text_width,
            "intermediate_size": text_block.mlp.c_fc.out_features,
            "num_hidden_layers": len(model.transformer.resblocks),
            "num_attention_heads": text_block.attn.num_heads,
            "max_position_embeddings": model.context_length,
            # The embedding of a text is that of its end-of-text token, which is found by this id.
            "bos_token_id": clip.tokenizer.sot_token_id,
            "eos_token_id": clip.tokenizer.eot_token_id,
            "pad_token_id": clip.tokenizer.eot_token_id,
        },
    }


def mapped_weights(state: Mapping[str, Tensor], clip: Clip) -> dict[str, Tensor]:
    """open_clip's tensors under transformers' names; an unknown tensor is a ModelError."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name not in _SINGLE and ".resblocks." not in name:
            raise _unsupported(clip, f"a tensor {name!r}")
        for new, part in _renamed(name, tensor.detach().cpu()):
            mapped[new] = part.contiguous().clone()
    return mapped


_SINGLE = {
    "logit_scale": "logit_scale",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",  # spelled so in transformers
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "visual.proj": "visual_projection.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "text_projection": "text_projection.weight",
}
_IN_BLOCKS = {
    "ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn.out_proj": "self_attn.out_proj", "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}  # fmt: skip


def _renamed(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if name in _SINGLE:
        # transformers stores the transposed matrix
        yield _SINGLE[name], tensor.mT if name in ("visual.proj", "text_projection") else tensor
        return
    tower, _, rest = name.partition("transformer.resblocks.")
    number, _, inner = rest.partition(".")
    layer = f"{'vision' if tower else 'text'}_model.encoder.layers.{number}"
    kind = "weight" if name.endswith("weight") else "bias"
    if inner in ("attn.in_proj_weight", "attn.in_proj_bias"):
        for part, which in zip(torch.chunk(tensor, 3), "qkv", strict=True):
            yield f"{layer}.self_attn.{which}_proj.{kind}", part
    else:
        module = inner.rpartition(".")[0]
        yield f"{layer}.{_IN_BLOCKS.get(module, inner)}.{kind}", tensor


def _write_processor(clip: Clip, temporary: Path) -> None:
    """Write tokenizer and image processor."""
    from transformers import CLIPImageProcessor, CLIPTokenizer

    tokenizer: Any = clip.tokenizer
    # Two special tokens have other names in transformers.
    special = {tokenizer.sot_token_id: "<|startoftext|>", tokenizer.eot_token_id: "<|endoftext|>"}
    vocabulary = {special.get(index, token): index for token, index in tokenizer.encoder.items()}
    CLIPTokenizer(
        vocab=vocabulary, merges=list(tokenizer.bpe_ranks), model_max_length=tokenizer.context_length
    ).save_pretrained(temporary)  # fmt: skip
    p = clip.preprocess
    squash = p.resize_mode == "squash"
    square = {"height": p.size, "width": p.size}
    CLIPImageProcessor(
        size=square if squash else {"shortest_edge": p.size}, crop_size=square, do_center_crop=not squash,
        resample={"bicubic": 3, "bilinear": 2}[p.interpolation], image_mean=list(p.mean), image_std=list(p.std),
    ).save_pretrained(temporary)  # fmt: skip
    # Needed by CLIPProcessor and pipelines.
    file = temporary / "preprocessor_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**config, "processor_class": "CLIPProcessor"}, indent=2) + "\n", encoding="utf-8")
