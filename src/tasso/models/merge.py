"""The weights between two models, (1 − α)·A + α·B (WiSE-FT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tasso.errors import ConfigError, ModelError
from tasso.models.clip import Clip


def check_same_kind(a: Clip, b: Clip) -> None:
    """Raise a ModelError unless both models mean the same by each of their weights."""

    def refuse(what: str) -> ModelError:
        return ModelError(f"merge: {a.spec} and {b.spec} cannot be merged: {what}")

    shapes = [{name: tuple(tensor.shape) for name, tensor in clip.model.state_dict().items()} for clip in (a, b)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        first, second = (own.get(name) for own in shapes)
        if first is None or second is None:
            raise refuse(f"only {'the second' if first is None else 'the first'} has a tensor {name!r}")
        if first != second:
            raise refuse(f"tensor {name!r} has shape {first} in the one and {second} in the other")
    for part in ("", "vision_cfg", "text_cfg"):
        settings = [_settings(clip.architecture, part) for clip in (a, b)]
        for key in sorted(settings[0].keys() | settings[1].keys()):
            first, second = (own.get(key, default_of(key)) for own in settings)
            if first != second:
                raise refuse(f"{key} is {first} in the one and {second} in the other")
    if a.preprocess != b.preprocess:
        raise refuse(f"they look at images differently ({a.preprocess} and {b.preprocess})")
    words = [clip.vocabulary.read_bytes() if clip.vocabulary else b"" for clip in (a, b)]
    if words[0] != words[1]:
        raise refuse("they have different vocabularies")


def _settings(architecture: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Plain values of a config; where a vocabulary lies does not matter, what is in it is compared."""
    values = architecture.get(part, {}) if part else architecture
    return {key: v for key, v in values.items() if not isinstance(v, dict) and key != "init_logit_scale"}


def default_of(key: str) -> Any:
    """What a config means by leaving a key out, for the one key that changes no shape and is often left out."""
    return False if key == "quick_gelu" else None


def merged(a: Clip, b: Clip, alpha: float) -> Clip:
    """A model with the weights (1 − α)·A + α·B; for 0 and 1 the bits are those of A and B."""
    check_alpha(alpha)
    check_same_kind(a, b)
    result = a.copy()
    other = b.model.state_dict()
    mixed = {}
    for name, tensor in a.model.state_dict().items():
        second = other[name].to(tensor.device)
        counts = not tensor.is_floating_point()  # such as the batches a normalisation has seen
        mixed[name] = (second if alpha >= 0.5 else tensor) if counts else torch.lerp(tensor, second, alpha)
    result.model.load_state_dict(mixed)
    result.clear_text_cache()
    return result


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha: must lie in 0 … 1, not {alpha}")
