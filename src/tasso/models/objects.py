"""Model objects given from Python. Each has a name made of its content, so that a configuration can refer to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tasso.config.paths import OBJECT
from tasso.decoding.views import Preprocess
from tasso.errors import ModelError
from tasso.models import hf
from tasso.models.clip import Clip, ModelSpec

if TYPE_CHECKING:
    from tasso.config.keywords import ModelObject

_given: dict[str, Clip] = {}  # copies, by name, of those of this process


def name_of(given: ModelObject) -> str:
    """Make an object known to this process; returns its name, the same in another process.

    Args:
        given: the model (open_clip's, transformers' CLIPModel or SiglipModel, or any module with `visual`,
            `encode_text` and `logit_scale`), its tokenizer, and its preprocessing: a `Preprocess`, open_clip's
            evaluation transform, or transformers' processor. None of them is changed.
    """
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise ModelError("model: expected a name, or a tuple of a model, its tokenizer and its preprocessing")
    model, tokenizer, preprocess = given
    if type(model).__module__.startswith("transformers."):
        # A processor is both.
        found = hf.adopt(
            model, getattr(tokenizer, "tokenizer", tokenizer), getattr(preprocess, "image_processor", preprocess)
        )
    else:
        found = _open_clip_parts(model, tokenizer, preprocess)
    clip = Clip(found.model, found.tokenizer, found.preprocess, ModelSpec(OBJECT), found.architecture)
    content = [clip.weights_checksum(), clip.tokenizer(["a photo of a cat."]).tolist(), clip.preprocess]
    name = f"{OBJECT}{type(model).__name__}-{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}"
    if name not in _given:
        clip.spec = ModelSpec(name)
        _given[name] = clip.copy().to("cpu")
    return name


def find(name: str) -> Clip:
    """The object of this name, as it was given."""
    if name not in _given:
        others = f" (given in this process: {', '.join(_given)})" if _given else ""
        raise ModelError(
            f"model: {name} is a model object, which no run folder holds{others}. Give the same object again: "
            "tasso.load(RUN, model=(model, tokenizer, preprocess))"
        )
    return _given[name]


def _open_clip_parts(model: Any, tokenizer: Any, preprocess: Any) -> hf.Parts:
    kind = type(model).__name__
    if not isinstance(model, nn.Module) or not isinstance(getattr(model, "visual", None), nn.Module):
        raise ModelError(f"model: {kind} has no image tower `visual`; give open_clip's or transformers' model")
    scale = getattr(model, "logit_scale", None)
    encode: Any = getattr(model, "encode_text", None)
    if not callable(encode) or not isinstance(scale, Tensor):
        raise ModelError(f"model: {kind} has no `encode_text` or no tensor `logit_scale`")
    if not callable(tokenizer):
        raise ModelError(f"model: its tokenizer is {type(tokenizer).__name__}, which cannot be called")
    tokens = tokenizer(["a"])
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        raise ModelError(f"model: its tokenizer returns {type(tokens).__name__}, not token ids (texts, context length)")
    try:
        with torch.no_grad():
            width = int(encode(tokens.to(scale.device)).shape[-1])
    except (RuntimeError, IndexError, TypeError) as error:  # ids that the text tower does not have, or too many of them
        raise ModelError(f"model: {kind} cannot encode what its tokenizer returns: {hf.first_line(error)}") from None
    bias = {"init_logit_bias": -10} if getattr(model, "logit_bias", None) is not None else {}
    # Its sizes are not known; what needs them (export for open_clip and transformers) refuses.
    architecture = {"embed_dim": width, **bias, "vision_cfg": {}, "text_cfg": {}}
    return hf.Parts(model, tokenizer, _preprocess_of(preprocess), architecture)


def _preprocess_of(transform: Any) -> Preprocess:
    """open_clip's evaluation transform (torchvision's Compose) as ours."""
    if isinstance(transform, Preprocess):
        return transform
    steps = {type(step).__name__: step for step in getattr(transform, "transforms", ())}
    try:
        resize, normalise = steps["Resize"], steps["Normalize"]
        sizes = resize.size if isinstance(resize.size, Sequence) else [resize.size]
        crops = steps["CenterCrop"].size if "CenterCrop" in steps else sizes
        if len({*sizes, *crops}) > 1 or (len(sizes) == 1 and "CenterCrop" not in steps):
            raise ValueError(f"resized to {resize.size}, then cropped to {crops}")
        mode = "squash" if len(sizes) == 2 else "shortest"
        interpolation = str(resize.interpolation.value)
        if interpolation not in ("bicubic", "bilinear"):
            raise ValueError(f"{interpolation} interpolation")
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"model: its preprocessing is not supported ({error}): give a tasso.data.images.Preprocess, or the "
            "evaluation transform of open_clip.create_model_and_transforms"
        ) from None
    return Preprocess(int(sizes[0]), tuple(normalise.mean), tuple(normalise.std), interpolation, mode)  # type: ignore[arg-type]
