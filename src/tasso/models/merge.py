"""Interpolation between the weights of two models, (1 − α)·A + α·B (WiSE-FT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tasso.errors import ConfigError, ModelError
from tasso.models.clip import Clip

# The one key that is often left out of a config and changes no shape.
DEFAULTS = {"quick_gelu": False}


def check_mergeable(a: Clip, b: Clip) -> None:
    """Raise a ModelError unless both models have the same architecture, preprocessing and vocabulary."""

    def error(reason: str) -> ModelError:
        return ModelError(f"merge: {a.spec} and {b.spec} cannot be merged: {reason}")

    shapes = [{name: tuple(tensor.shape) for name, tensor in clip.model.state_dict().items()} for clip in (a, b)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        first, second = (shape.get(name) for shape in shapes)
        if first is None or second is None:
            raise error(f"only {'the second' if first is None else 'the first'} has a tensor {name!r}")
        if first != second:
            raise error(f"tensor {name!r} has shape {first} in the first and {second} in the second")
    for part in ("", "vision_cfg", "text_cfg"):
        settings = [_settings(clip.architecture, part) for clip in (a, b)]
        for key in sorted(settings[0].keys() | settings[1].keys()):
            first, second = (values.get(key, DEFAULTS.get(key)) for values in settings)
            if first != second:
                raise error(f"{key} is {first} in the first and {second} in the second")
    if a.preprocess != b.preprocess:
        raise error(f"their preprocessing differs ({a.preprocess} and {b.preprocess})")
    vocabularies = [clip.vocabulary.read_bytes() if clip.vocabulary else b"" for clip in (a, b)]
    if vocabularies[0] != vocabularies[1]:
        raise error("they have different vocabularies")


def _settings(architecture: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Scalar values of a config. The path of a vocabulary is left out: its content is compared."""
    values = architecture.get(part, {}) if part else architecture
    return {key: v for key, v in values.items() if not isinstance(v, dict) and key != "init_logit_scale"}


def merged(a: Clip, b: Clip, alpha: float) -> Clip:
    """A model with the weights (1 − α)·A + α·B. For α of 0 and 1 the bits are those of A and B."""
    check_alpha(alpha)
    check_mergeable(a, b)
    result = a.copy()
    b_state = b.model.state_dict()
    state = {}
    for name, tensor in a.model.state_dict().items():
        other = b_state[name].to(tensor.device)
        if tensor.is_floating_point():
            state[name] = torch.lerp(tensor, other, alpha)
        else:  # counters, such as BatchNorm's num_batches_tracked
            state[name] = other if alpha >= 0.5 else tensor
    result.model.load_state_dict(state)
    return result


def check_alpha(alpha: float) -> None:
    """Raise a ConfigError unless 0 ≤ α ≤ 1."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha: must lie in 0 … 1, not {alpha}")
