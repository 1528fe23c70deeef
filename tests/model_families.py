"""Tiny models of every family, with random weights, saved by the libraries that others save theirs with."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.push_to_hf_hub import save_for_hf

from tasso.config.keywords import ModelObject
from tasso.models.loading import NANO

WORDS = ["a", "photo", "of", "this", "is", "dtd", "eurosat", "kind", "0", "1", "2"]
TEXT = {"context_length": 48, "vocab_size": 600, "width": 16, "heads": 2, "layers": 1}
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES = {
    "text_config": {**TOWER, "vocab_size": 600, "max_position_embeddings": 48, "bos_token_id": 0, "eos_token_id": 1},
    "vision_config": {**TOWER, "image_size": 16, "patch_size": 8},
}
SIGLIP_TEXT = {
    **TEXT, "no_causal_mask": True, "proj_bias": True, "pool_type": "last", "norm_kwargs": {"eps": 1e-6},
    "hf_tokenizer_name": "timm/ViT-B-16-SigLIP", "tokenizer_kwargs": {"clean": "canonicalize"},
}  # fmt: skip
# Configs of open_clip's list with the tower of its kind that is smallest, and few widths.
OPEN_CLIP: dict[str, dict[str, Any]] = {
    "siglip": {
        "embed_dim": 64, "init_logit_bias": -10, "custom_text": True, "text_cfg": SIGLIP_TEXT,
        "vision_cfg": {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none"},
    },
    "rn50": {
        "embed_dim": 32, "text_cfg": TEXT,
        "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None},
    },
    "convnext": {
        "embed_dim": 24, "text_cfg": TEXT,
        "vision_cfg": {"image_size": 32, "timm_model_name": "test_convnext", "timm_pool": "", "timm_proj": "linear"},
    },
    "timm-vit": {
        "embed_dim": 24, "text_cfg": TEXT,
        "vision_cfg": {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "avg", "timm_proj": "mlp"},
    },
    "mobileclip": {
        "embed_dim": 24, "custom_text": True, "text_cfg": {**TEXT, "no_causal_mask": True},
        "vision_cfg": {"image_size": 32, "timm_model_name": "fastvit_mci0", "timm_pool": "avg", "timm_proj": None},
    },
}  # fmt: skip


def clip_tokenizer(end: int | None = None) -> Any:
    """transformers' CLIPTokenizer of letters, whose end-of-text token has the largest id, or this one."""
    from transformers import CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789."
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>"]
    tokens.insert(len(tokens) if end is None else end, "<|endoftext|>")
    return CLIPTokenizer(vocab={token: index for index, token in enumerate(tokens)}, merges=[])


def gemma_tokenizer() -> Any:
    """As SigLIP 2 has it."""
    from transformers import GemmaTokenizer

    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    return GemmaTokenizer(vocab={token: index for index, token in enumerate(tokens)}, merges=[], padding_side="right")


def t5_tokenizer() -> Any:
    """As open_clip's SigLIP has it."""
    from transformers import T5Tokenizer

    tokens = ["<pad>", "</s>", "<unk>", "▁", *(f"▁{word}" for word in WORDS), *"abcdefghijklmnopqrstuvwxyz0123456789"]
    return T5Tokenizer(vocab=[(token, -float(index)) for index, token in enumerate(tokens)], extra_ids=0)


def write_hf_clip(folder: Path, end: int | None = None, **saving: Any) -> str:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    tokenizer = clip_tokenizer(end)
    text = {**SIZES["text_config"], "vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    CLIPModel(CLIPConfig(**{**SIZES, "text_config": text}, projection_dim=24)).save_pretrained(folder, **saving)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"hf:{folder}"


def write_hf_siglip(folder: Path, tokenizer: Callable[[], Any] = gemma_tokenizer) -> str:
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    SiglipModel(SiglipConfig(**SIZES)).save_pretrained(folder)
    SiglipImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return f"hf:{folder}"


def write_open_clip(folder: Path, name: str) -> str:
    """As open_clip writes a repository of the hub."""
    config = json.loads(json.dumps(OPEN_CLIP[name]))
    custom = config.get("custom_text", False)
    model = (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(
        **{key: value for key, value in config.items() if key != "custom_text"}
    )
    open_clip.model.set_model_preprocess_cfg(model, {"mean": [0.5] * 3, "std": [0.25] * 3})
    folder.mkdir(parents=True)
    tokenizer = t5_tokenizer() if name == "siglip" else NoFiles()
    if name != "siglip":
        # The first merges of CLIP's own vocabulary.
        config["text_cfg"]["tokenizer_kwargs"] = {"bpe_path": "bpe.txt.gz"}
        with gzip.open(folder / "bpe.txt.gz", "wt", encoding="utf-8") as file:
            file.write("#version\n" + "\n".join(["t h", "a n", "th e</w>"]) + "\n")
    save_for_hf(model, tokenizer, config, folder, safe_serialization=True)
    return f"local-dir:{folder}"


class NoFiles:
    """open_clip's own tokenizer has none to save."""

    def save_pretrained(self, folder: Path) -> None: ...


def cached_on_hub(folder: Path, cache: Path, repository: str) -> None:
    """Lay a folder into the hub's cache, as if it had been downloaded."""
    place = cache / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / "0123abc")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123abc")


def model_object() -> ModelObject:
    """As in a notebook: open_clip's model, tokenizer and evaluation transform."""
    torch.manual_seed(3)
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{NANO}")
    return model, open_clip.SimpleTokenizer(str(NANO / "bpe_nano.txt.gz"), context_length=32), preprocess


WRITERS: dict[str, Callable[[Path], str]] = {
    "hf-clip": write_hf_clip,
    "hf-siglip": write_hf_siglip,
    **{name: lambda folder, name=name: write_open_clip(folder, name) for name in OPEN_CLIP},  # type: ignore[misc]
}
