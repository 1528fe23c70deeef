"""The two towers as modules from tensors to unit embeddings, for formats that store graphs (ONNX)."""

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

from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.export.classes import exact_preprocessing
from tasso.models.inference import Embedded

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


class ImageClassifier(ImageEncoder):
    """Probabilities (B, A) of the run's classes and unit embeddings (B, D) of normalised pixels."""

    def __init__(self, clip: Clip, classifier: Classifier) -> None:
        super().__init__(clip)
        self.classifier = classifier

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        tokens = self.classifier.head.tokens if self.classifier.head else None
        if tokens is None:
            images = Embedded(super().forward(pixels))
        else:
            with tokens.read() as found:
                images = Embedded(super().forward(pixels), tokens=tokens.pool(found[0]))
        return self.classifier.probabilities(images), images.features


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


@dataclasses.dataclass(frozen=True)
class Graph:
    """What is stored as one: a module, an example of its input, and the names of input and outputs."""

    module: nn.Module
    example: Tensor
    argument: str
    outputs: tuple[str, ...] = ("unit_embedding",)


def graphs(clip: Clip, classifier: Classifier | None) -> dict[str, Graph]:
    """By name: the image encoder, or the classifier if there is one, and the text encoder."""
    clip.to("cpu")
    size = clip.preprocess.size
    pixels = torch.zeros(EXAMPLE_BATCH, 3, size, size)
    tokens = torch.as_tensor(clip.tokenizer(["a"] * EXAMPLE_BATCH))
    texts = Graph(TextEncoder(clip).eval(), tokens, "tokens")
    if classifier is None:
        return {"image_encoder": Graph(ImageEncoder(clip).eval(), pixels, "pixels"), "text_encoder": texts}
    module = ImageClassifier(clip, classifier).eval()
    return {
        "classifier": Graph(module, pixels, "pixels", ("probabilities", "unit_embedding")),
        "text_encoder": texts,
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
    return f"""{exact_preprocessing(clip).strip()}
tokenizer = {_tokenizer_code(clip)}
tokens = tokenizer(TEXTS)"""


def _tokenizer_code(clip: Clip) -> str:
    length = int(clip.tokenizer(["a"]).shape[-1])
    if clip.vocabulary:
        return f'open_clip.SimpleTokenizer("FOLDER/{clip.vocabulary.name}", context_length={length})'
    if isinstance(clip.tokenizer, open_clip.tokenizer.HFTokenizer):
        clean = clip.tokenizer.clean_fn.__name__.removeprefix("_clean_")
        return f'open_clip.tokenizer.HFTokenizer("FOLDER", context_length={length}, clean="{clean}")'
    return f"open_clip.SimpleTokenizer(context_length={length})"
