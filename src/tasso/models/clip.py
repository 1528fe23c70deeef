"""An open_clip model seen as an image encoder, a text encoder and cached class embeddings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images.transforms import Preprocess
from tasso.distributed import SINGLE_PROCESS
from tasso.errors import ModelError
from tasso.models.mixed_precision import Forward, cast, run_in
from tasso.models.towers import embed_images, embed_tokens, without_padding

TEXT_CHUNK = 512


@dataclass(frozen=True)
class ModelSpec:
    """How to build the model again: a name and where its weights come from."""

    model: str
    pretrained: str | None = None

    def __str__(self) -> str:
        return self.model + (f" ({self.pretrained})" if self.pretrained else "")


class Clip:
    """A CLIP model with what is needed to look at images and to name classes.

    All embeddings it returns are float32 and of unit length. While training, towers may run in bfloat16 (`precision`);
    texts that are encoded once and then kept are encoded in float32.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        preprocess: Preprocess,
        spec: ModelSpec,
        architecture: dict[str, Any],
        vocabulary: Path | None = None,
    ) -> None:
        """`architecture` is open_clip's model config; `vocabulary` a tokenizer file that belongs to this model."""
        self.model, self.tokenizer, self.preprocess, self.spec = model, tokenizer, preprocess, spec
        self.architecture, self.vocabulary = architecture, vocabulary
        self.precision = torch.float32
        # While training only: evaluation has batches of any size, each of which would be compiled anew.
        self.compiled = False
        self.distributed = SINGLE_PROCESS  # those that share a batch with this one while training
        self._class_embeddings: dict[tuple[tuple[str, ...], tuple[str, ...]], Tensor] = {}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def visual(self) -> nn.Module:
        """The image tower."""
        tower = self.model.visual
        assert isinstance(tower, nn.Module)
        return tower

    @property
    def logit_scale(self) -> float:
        """The factor on cosines before the softmax; learned in pretraining, never trained here."""
        scale = self.model.logit_scale
        assert isinstance(scale, Tensor)
        return float(scale.exp())

    @cached_property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.encode_texts(["a"]).shape[-1])

    def to(self, device: torch.device | str, precision: torch.dtype | None = None) -> Clip:
        """Move the model; optionally set the precision of the image tower."""
        self.model.to(device)
        self.precision = precision or self.precision
        self.clear_text_cache()
        return self

    def parameters_of(self, towers: str) -> dict[str, nn.Parameter]:
        """Named parameters of `visual`, `both` or `none` of the towers; the logit scale and bias belong to neither."""
        named = {n: p for n, p in self.model.named_parameters() if n not in ("logit_scale", "logit_bias")}
        return {name: parameter for name, parameter in named.items() if _belongs(name, towers)}

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings (B, D) of normalised images (B, 3, H, W); nothing is gathered from other processes."""
        compiled = self.compiled and torch.is_grad_enabled()
        return encode(embed_images, self.visual, pixels, self.precision, compiled)

    def encode_together(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Unit embeddings (B₁, D) and (B₂, D) of two batches of images from one forward pass."""
        both = self.encode_images(torch.cat([first, second]))
        return both[: len(first)], both[len(first) :]

    def accelerated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tensors of changing shapes, compiled where the towers are."""
        return compiled_once(function, dynamic=None) if self.compiled else function

    def frozen_image_encoder(self) -> FrozenImageEncoder:
        """A copy of the image tower as it is now, for use as a teacher."""
        return FrozenImageEncoder(self.visual, self.precision, self.compiled)

    def copy(self) -> Clip:
        """The model as it is now, for use while this one changes."""
        twin = Clip(
            copy.deepcopy(self.model), self.tokenizer, self.preprocess, self.spec, self.architecture, self.vocabulary
        )
        twin.precision = self.precision
        return twin

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit embeddings of texts in float32, without gradient."""
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            tokens = self.tokenise(texts)
            chunks = torch.split(tokens, TEXT_CHUNK)
            parts = [encode(embed_tokens, self.model, chunk, torch.float32) for chunk in chunks]
        self.model.train(training)
        return torch.cat(parts)

    def tokenise(self, texts: Sequence[str]) -> Tensor:
        """Tokens of texts, on the model's device, without padding that no text needs."""
        return without_padding(self.model, self.tokenizer(list(texts))).to(self.device)

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """Unit embeddings of tokenised texts, with gradient and at the model's precision: for training."""
        return encode(embed_tokens, self.model, tokens, self.precision, self.compiled and torch.is_grad_enabled())

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """One unit embedding a class: the mean over the templates. Computed once, until `clear_text_cache`."""
        key = (tuple(class_names), tuple(templates))
        if key not in self._class_embeddings:
            self._class_embeddings[key] = self.encode_classes(class_names, templates)
        return self._class_embeddings[key]

    def encode_classes(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """As `class_embeddings`, computed now."""
        return mean_of_templates(self.encode_texts(prompts(class_names, templates)), len(templates))

    def clear_text_cache(self) -> None:
        """Drop kept class embeddings: the text tower has changed or moved."""
        self._class_embeddings.clear()

    def state(self, towers: str) -> dict[str, Tensor]:
        """The towers' tensors (parameters and buffers), as they are."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items() if _belongs(name, towers)}

    def load_state(self, state: dict[str, Tensor], where: str) -> None:
        """Put back what `state` gave; every tensor must belong to the model and have its shape."""
        own = self.model.state_dict()
        for name, tensor in state.items():
            if name not in own:
                raise ModelError(f"{where}: tensor {name!r} does not belong to {self.spec}")
            if own[name].shape != tensor.shape:
                shapes = f"{tuple(tensor.shape)} instead of {tuple(own[name].shape)}"
                raise ModelError(f"{where}: tensor {name!r} has shape {shapes}: not a checkpoint of {self.spec}")
            if own[name].is_floating_point() != tensor.is_floating_point():
                raise ModelError(f"{where}: tensor {name!r} has numbers of another type: {tensor.dtype}")
        check_finite(state, where)
        self.model.load_state_dict(state, strict=False)
        if not all(name.startswith("visual.") for name in state):
            self.clear_text_cache()

    def count_parameters(self) -> dict[str, int]:
        """How many numbers the model is made of."""
        image = sum(p.numel() for p in self.visual.parameters())
        total = sum(p.numel() for p in self.model.parameters())
        return {"total": total, "image_tower": image, "text_tower": total - image}


class FrozenImageEncoder:
    """An image tower that never changes."""

    def __init__(self, tower: nn.Module, precision: torch.dtype, compiled: bool = False) -> None:
        self.tower = copy.deepcopy(tower).eval().requires_grad_(False)
        self.precision, self.compiled = precision, compiled
        self.stream: torch.cuda.Stream | None = None
        if precision != torch.float32:
            cast(self.tower, precision)  # what autocast would make of these weights in every step, made once

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings (B, D) of normalised images (B, 3, H, W), without gradient."""
        with torch.no_grad():
            return encode(embed_images, self.tower, pixels, self.precision, self.compiled)

    def encode_async(self, pixels: Tensor) -> PendingFeatures:
        """As `encode_images`, on a side stream of the GPU: it overlaps with what is launched before `wait`."""
        if not pixels.is_cuda:
            return PendingFeatures(self.encode_images(pixels))
        if self.stream is None:
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            return PendingFeatures(self.encode_images(pixels), self.stream)


@dataclass(frozen=True)
class PendingFeatures:
    """Embeddings that a side stream may still be computing."""

    features: Tensor
    stream: torch.cuda.Stream | None = None

    def wait(self) -> Tensor:
        """The embeddings (B, D), for use on the current stream."""
        if self.stream is not None:
            current = torch.cuda.current_stream()
            current.wait_stream(self.stream)
            self.features.record_stream(current)  # else the side stream might write there before this one has read
        return self.features


@cache
def compiled_once(function: Callable[..., Any], dynamic: bool | None = False) -> Callable[..., Any]:
    """One compiled function for all inputs of one shape: a new task's teacher needs no compilation of its own.

    Made when it is first wanted: the compiler takes seconds to import.
    """
    return torch.compile(function, dynamic=dynamic)


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class name in every template, the templates of one class side by side."""
    return [template.replace("{}", name) for name in class_names for template in templates]


def mean_of_templates(embeddings: Tensor, templates: int) -> Tensor:
    """One unit embedding a class from those of its prompts."""
    if templates == 1:
        return embeddings
    return F.normalize(embeddings.view(-1, templates, embeddings.shape[-1]).mean(1), dim=-1)


def _belongs(name: str, towers: str) -> bool:
    return towers == "both" or (towers == "visual" and name.startswith("visual."))


def encode(
    forward: Forward, module: nn.Module, inputs: Tensor, precision: torch.dtype, compiled: bool = False
) -> Tensor:
    """Embeddings from a tower, under autocast where asked, then float32 and of unit length."""
    run: Forward = compiled_once(forward) if compiled else forward
    features = run(module, inputs) if precision == torch.float32 else run_in(precision, run, module, inputs)
    return F.normalize(features.float(), dim=-1)


def check_finite(state: Mapping[str, Tensor], where: str) -> None:
    """Raise a ModelError that names the first tensor with NaN or inf in it."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{where}: tensor {name!r} contains inf or NaN")
