"""Export as transformers' CLIPModel or SiglipModel with its processor. Of open_clip's models, OpenAI's architecture can
be converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip

from tasso.errors import ModelError
from tasso.models import hf
from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.export.classes import classes_code, write_classes
from tasso.models.export.folder import check_described

README = """
```python
import torch
from PIL import Image, ImageOps
from transformers import CLIPModel, CLIPProcessor

model = CLIPModel.from_pretrained("FOLDER")
processor = CLIPProcessor.from_pretrained("FOLDER")
image = ImageOps.exif_transpose(Image.open("IMAGE"))
inputs = processor(
    text=TEXTS, images=image, return_tensors="pt", padding="max_length", max_length=LENGTH, truncation=True
)
with torch.no_grad():
    outputs = model(**inputs)
image_embedding, text_embeddings = outputs.image_embeds, outputs.text_embeds
probabilities = outputs.logits_per_image.softmax(-1)
```

The activation is `ACTIVATION` in `config.json` (`hidden_act`). TOKENS
"""
TOKENS = {
    "CLIP": "Texts are tokenised as in tasso, except that\ntransformers neither repairs broken Unicode nor resolves "
    "HTML entities.",
    "Siglip": "Texts are to be in lower case and without\npunctuation, as tasso makes them, and as in training.",
}

# Keys of open_clip's config that transformers can represent. All others must have one of the values in NEUTRAL.
SUPPORTED = {
    "": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "init_logit_scale"},
    "vision_cfg": {"image_size", "head_width", "patch_size", "patch_dropout"},
    "text_cfg": {"context_length", "vocab_size", "heads", "eos_id", "tokenizer_kwargs", "hf_tokenizer_name"},
}
IN_BOTH_TOWERS = {"layers", "width", "mlp_ratio", "norm_kwargs", "act_kwargs"}
NEUTRAL: dict[str, Any] = {
    "pool_type": ("tok", "argmax", "eos"), "ls_init_value": (None,), "attentional_pool": (False,),
    "output_tokens": (False,),
    "global_average_pool": (False,), "no_ln_pre": (False,), "final_ln_after_pool": (False,), "embed_cls": (False,),
    "no_causal_mask": (False,), "proj_bias": (False,), "proj_type": ("linear",), "pos_embed_type": ("learnable",),
    "custom_text": (False,),
}  # fmt: skip


LOADING = """
model = AutoModel.from_pretrained("FOLDER").eval()
with torch.no_grad():
    outputs = model.vision_model(pixels, output_hidden_states=True)
    image_embedding = torch.nn.functional.normalize(POOLED, dim=-1).numpy()"""
READ_TOKENS = """
tokens = outputs.hidden_states[-2].numpy()  # what the last block reads"""
POOLED = {"CLIP": "model.visual_projection(outputs.pooler_output)", "Siglip": "outputs.pooler_output"}


def to_transformers(clip: Clip, classifier: Classifier | None, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`; returns usage for the README."""
    transformers = hf.import_transformers("export: --to hf")
    check_described(clip)
    if isinstance(clip.model, hf.SiglipTowers):
        model = clip.model.to_transformers()
    else:
        _check_supported(clip)
        model = transformers.CLIPModel(transformers.CLIPConfig(**_config(clip)))
        model.load_state_dict(hf.to_transformers(clip.model.state_dict()))
    with hf.without_bars():
        model.eval().save_pretrained(temporary)
    kind = type(model).__name__.removesuffix("Model")
    _write_processor(clip, temporary, kind)
    text = model.config.text_config
    usage = README.replace("CLIP", kind).replace("LENGTH", str(text.max_position_embeddings))
    usage = usage.replace("ACTIVATION", text.hidden_act).replace("TOKENS", TOKENS[kind])
    if not classifier:
        return usage
    write_classes(classifier, temporary)
    loading = LOADING.replace("POOLED", POOLED[kind])
    library = "from transformers import AutoModel"
    return classes_code(classifier, clip, library, loading, loading + READ_TOKENS) + usage


def _unsupported(clip: Clip, what: str) -> ModelError:
    return ModelError(f"export: {clip.spec} has {what}, which transformers.CLIPModel does not support")


def _check_supported(clip: Clip) -> None:
    """Raise a ModelError that names what transformers.CLIPModel does not support."""
    if type(clip.model) is not open_clip.CLIP:
        raise _unsupported(clip, f"the architecture {type(clip.model).__name__}")
    for part, supported in SUPPORTED.items():
        for key, value in (clip.architecture[part] if part else clip.architecture).items():
            if key not in supported | IN_BOTH_TOWERS and value not in NEUTRAL.get(key, ()):
                raise _unsupported(clip, f"{part + '.' if part else ''}{key} = {value!r}")
    if not isinstance(clip.architecture["vision_cfg"]["layers"], int):
        raise _unsupported(clip, "a convolutional image tower")
    if not isinstance(clip.tokenizer, open_clip.SimpleTokenizer) and not _is_clips(clip.tokenizer):
        raise _unsupported(clip, "a tokenizer that is not CLIP's")


def _is_clips(tokenizer: Any) -> bool:
    return type(getattr(tokenizer, "tokenizer", None)).__name__.startswith("CLIPTokenizer")


def _activation(clip: Clip, tower: str) -> str:
    kwargs = clip.architecture[tower].get("act_kwargs") or {}
    if clip.architecture.get("quick_gelu", False) and not kwargs:
        return "quick_gelu"
    if kwargs not in hf.ACTIVATIONS.values():
        raise _unsupported(clip, f"{tower}.act_kwargs = {kwargs}")
    return next(name for name, arguments in hf.ACTIVATIONS.items() if arguments == kwargs)


def _config(clip: Clip) -> dict[str, Any]:
    model: Any = clip.model
    visual: Any = clip.visual
    width, text_width = visual.conv1.out_channels, model.token_embedding.embedding_dim
    own: Any = clip.tokenizer
    ids = own if isinstance(own, open_clip.SimpleTokenizer) else own.tokenizer
    start, end = (ids.sot_token_id, ids.eot_token_id) if ids is own else (ids.bos_token_id, ids.eos_token_id)
    end = clip.architecture["text_cfg"].get("eos_id", end)
    block, text_block = visual.transformer.resblocks[0], model.transformer.resblocks[0]
    return {
        "projection_dim": clip.dim,
        "logit_scale_init_value": float(model.logit_scale),
        "vision_config": {
            "hidden_act": _activation(clip, "vision_cfg"),
            "layer_norm_eps": visual.ln_post.eps,
            "projection_dim": clip.dim,
            "hidden_size": width,
            "intermediate_size": block.mlp.c_fc.out_features,
            "num_hidden_layers": len(visual.transformer.resblocks),
            "num_attention_heads": block.attn.num_heads,
            "image_size": clip.preprocess.size,
            "patch_size": visual.conv1.kernel_size[0],
        },
        "text_config": {
            "hidden_act": _activation(clip, "text_cfg"),
            "layer_norm_eps": model.ln_final.eps,
            "projection_dim": clip.dim,
            "vocab_size": model.vocab_size,
            "hidden_size": text_width,
            "intermediate_size": text_block.mlp.c_fc.out_features,
            "num_hidden_layers": len(model.transformer.resblocks),
            "num_attention_heads": text_block.attn.num_heads,
            "max_position_embeddings": model.context_length,
            # The embedding of a text is that of its end-of-text token, which is found by this id.
            "bos_token_id": start,
            "eos_token_id": end,
            "pad_token_id": end,
        },
    }


def _write_processor(clip: Clip, temporary: Path, kind: str) -> None:
    """Write tokenizer and image processor."""
    transformers = hf.import_transformers()
    tokenizer: Any = clip.tokenizer
    if isinstance(tokenizer, open_clip.SimpleTokenizer):
        # Two special tokens have other names in transformers.
        special = {tokenizer.sot_token_id: "<|startoftext|>", tokenizer.eot_token_id: "<|endoftext|>"}
        vocabulary = {special.get(index, token): index for token, index in tokenizer.encoder.items()}
        tokenizer = transformers.CLIPTokenizer(
            vocab=vocabulary, merges=list(tokenizer.bpe_ranks), model_max_length=tokenizer.context_length
        )
    elif kind == "Siglip":
        # Its text tower was trained without a mask of padding.
        tokenizer.tokenizer.model_input_names = tokenizer.tokenizer.init_kwargs["model_input_names"] = ["input_ids"]
    tokenizer.save_pretrained(temporary)
    p = clip.preprocess
    squash = p.resize_mode == "squash"
    square = {"height": p.size, "width": p.size}
    getattr(transformers, f"{kind}ImageProcessor")(
        size=square if squash else {"shortest_edge": p.size}, crop_size=square, do_center_crop=not squash,
        resample={"bicubic": 3, "bilinear": 2}[p.interpolation], image_mean=list(p.mean), image_std=list(p.std),
    ).save_pretrained(temporary)  # fmt: skip
    # Needed by processors and pipelines.
    file = temporary / "preprocessor_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**config, "processor_class": f"{kind}Processor"}, indent=2) + "\n", encoding="utf-8")
