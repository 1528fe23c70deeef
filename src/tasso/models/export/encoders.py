"""The two towers as functions from tensors to unit embeddings, for formats that keep functions."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasso.models.clip import Clip

ABOUT = "about.json"
EXAMPLES = 2  # one alone might be taken for a size that never changes


class ImageEncoder(nn.Module):
    """Normalised pixels, batch × 3 × size × size, to unit embeddings."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.model = _part(clip.model, image=True)

    def forward(self, pixels: Tensor) -> Tensor:
        embedding: Tensor = self.model.encode_image(pixels, normalize=True)
        return embedding


class TextEncoder(nn.Module):
    """Tokens, batch × context length, to unit embeddings."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.model = _part(clip.model, image=False)

    def forward(self, tokens: Tensor) -> Tensor:
        embedding: Tensor = self.model.encode_text(tokens, normalize=True)
        return embedding


def _part(model: nn.Module, *, image: bool) -> Any:
    """The model with one tower only: what is traced takes all tensors along, needed or not."""
    part = copy.copy(model)  # another module with the same tensors
    part._modules = {name: module for name, module in model._modules.items() if (name == "visual") == image}
    if image:
        part._parameters = {}
    return part


def encoders(clip: Clip) -> dict[str, tuple[nn.Module, Tensor, str]]:
    """By name: the encoder, an input like those it will get, and what the input is called."""
    clip.to("cpu")
    size = clip.preprocess.size
    pixels = torch.zeros(EXAMPLES, 3, size, size)
    tokens = torch.as_tensor(clip.tokenizer(["a"] * EXAMPLES))
    return {
        "image_encoder": (ImageEncoder(clip).eval(), pixels, "pixels"),
        "text_encoder": (TextEncoder(clip).eval(), tokens, "tokens"),
    }


def write_about(clip: Clip, place: Path) -> None:
    """What the encoders expect, and the vocabulary where the model has its own."""
    about = {
        **dataclasses.asdict(clip.preprocess),
        "context_length": int(clip.tokenizer(["a"]).shape[-1]),
        "embed_dim": clip.dim,
        "logit_scale": clip.logit_scale,
    }
    (place / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    if clip.vocabulary:
        shutil.copyfile(clip.vocabulary, place / clip.vocabulary.name)


def preparation(clip: Clip) -> str:
    """Python that makes `pixels` of an image and `tokens` of texts, with torchvision's transforms."""
    p = clip.preprocess
    mode = p.interpolation.upper()
    resize = f"T.Resize({p.size if p.resize_mode == 'shortest' else (p.size, p.size)}, T.InterpolationMode.{mode})"
    steps = f"[{resize}, T.CenterCrop({p.size}), T.ToTensor(), T.Normalize({p.mean}, {p.std})]"
    return f"""preprocess = T.Compose(
    {steps}
)
tokenizer = {_tokenizer(clip)}
pixels = preprocess(ImageOps.exif_transpose(Image.open("IMAGE")).convert("RGB"))[None]
tokens = tokenizer(TEXTS)"""


def _tokenizer(clip: Clip) -> str:
    length = int(clip.tokenizer(["a"]).shape[-1])
    if clip.vocabulary:
        return f'open_clip.SimpleTokenizer("FOLDER/{clip.vocabulary.name}", context_length={length})'
    if "hf_tokenizer_name" in clip.architecture["text_cfg"]:
        return f'open_clip.get_tokenizer("{clip.spec.model}")'
    return f"open_clip.SimpleTokenizer(context_length={length})"
