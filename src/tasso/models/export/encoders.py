"""The two towers as modules from tensors to unit embeddings, for formats that store graphs (TorchScript, ONNX)."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor, nn

from tasso.models.clip import Clip

METADATA_FILE = "metadata.json"
EXAMPLE_BATCH = 2  # tracing may treat a batch of 1 as a constant size


class ImageEncoder(nn.Module):
    """Unit embeddings (B, D) of normalised pixels (B, 3, size, size)."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.model = _single_tower(clip.model, image=True)

    def forward(self, pixels: Tensor) -> Tensor:
        embedding: Tensor = self.model.encode_image(pixels, normalize=True)
        return embedding


class TextEncoder(nn.Module):
    """Unit embeddings (B, D) of token ids (B, context length)."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.model = _single_tower(clip.model, image=False)

    def forward(self, tokens: Tensor) -> Tensor:
        embedding: Tensor = self.model.encode_text(tokens, normalize=True)
        return embedding


def _single_tower(model: nn.Module, *, image: bool) -> Any:
    """The model with one tower only: exporting stores all tensors of a module, used or not."""
    tower = copy.copy(model)  # shares its tensors with the model
    tower._modules = {name: module for name, module in model._modules.items() if (name == "visual") == image}
    if image:
        tower._parameters = {}
    return tower


def encoders(clip: Clip) -> dict[str, tuple[nn.Module, Tensor, str]]:
    """By name: the encoder, an example input, and the name of the input."""
    clip.to("cpu")
    size = clip.preprocess.size
    pixels = torch.zeros(EXAMPLE_BATCH, 3, size, size)
    tokens = torch.as_tensor(clip.tokenizer(["a"] * EXAMPLE_BATCH))
    return {
        "image_encoder": (ImageEncoder(clip).eval(), pixels, "pixels"),
        "text_encoder": (TextEncoder(clip).eval(), tokens, "tokens"),
    }


def write_metadata(clip: Clip, folder: Path) -> None:
    """Write preprocessing, sizes and logit scale, and the vocabulary if the model has its own."""
    metadata = {
        **dataclasses.asdict(clip.preprocess),
        "context_length": int(clip.tokenizer(["a"]).shape[-1]),
        "embed_dim": clip.dim,
        "logit_scale": clip.logit_scale,
    }
    (folder / METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    if clip.vocabulary:
        shutil.copyfile(clip.vocabulary, folder / clip.vocabulary.name)
    elif isinstance(clip.tokenizer, open_clip.tokenizer.HFTokenizer):
        clip.tokenizer.save_pretrained(folder)


def preprocessing_code(clip: Clip) -> str:
    """Python code for the README: `pixels` of an image with torchvision's transforms, and `tokens` of texts."""
    p = clip.preprocess
    mode = p.interpolation.upper()
    resize = f"T.Resize({p.size if p.resize_mode == 'shortest' else (p.size, p.size)}, T.InterpolationMode.{mode})"
    steps = f"[{resize}, T.CenterCrop({p.size}), T.ToTensor(), T.Normalize({p.mean}, {p.std})]"
    return f"""preprocess = T.Compose(
    {steps}
)
tokenizer = {_tokenizer_code(clip)}
pixels = preprocess(ImageOps.exif_transpose(Image.open("IMAGE")).convert("RGB"))[None]
tokens = tokenizer(TEXTS)"""


def _tokenizer_code(clip: Clip) -> str:
    length = int(clip.tokenizer(["a"]).shape[-1])
    if clip.vocabulary:
        return f'open_clip.SimpleTokenizer("FOLDER/{clip.vocabulary.name}", context_length={length})'
    if isinstance(clip.tokenizer, open_clip.tokenizer.HFTokenizer):
        clean = clip.tokenizer.clean_fn.__name__.removeprefix("_clean_")
        return f'open_clip.tokenizer.HFTokenizer("FOLDER", context_length={length}, clean="{clean}")'
    return f"open_clip.SimpleTokenizer(context_length={length})"
