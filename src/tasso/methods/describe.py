"""What there is to know about each method, from the methods themselves."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import open_clip
import torch

from tasso.data.images import Preprocess
from tasso.methods.base import METHODS, numbers
from tasso.models.clip import Clip, ModelSpec

TRAINS = {"visual": "image tower", "both": "both towers", "none": "added modules only"}
MEASURE = "ViT-B-16-quickgelu"


def describe(name: str) -> dict[str, Any]:
    """A method's facts; costs are those at ViT-B/16 with its default options."""
    cls = METHODS[name]
    method = cls()
    clip = _model_without_values()
    extras, towers = method.extras(clip), numbers(clip.parameters_of(method.towers))
    wants = ", ".join(wanted.name for wanted in method.wants()) or "nothing beside the task's images"
    return {
        "title": cls.title,
        "summary": cls.summary,
        "trains": TRAINS[method.towers],
        "teachers": cls.teachers,
        "wants": wants,
        "cost": {
            "trained_parameters": towers + extras.trained,
            "own_parameters": extras.trained,
            "held_while_training": extras.held,
            "kept_beside_the_model": extras.kept,
            "remark": extras.remark,
        },
        "run_defaults": dict(cls.run_defaults),
        "source": cls.source,
        "verified": cls.verified,
        "options": {
            f.name: {"default": getattr(method, f.name), "help": f.metadata["help"]} for f in dataclasses.fields(cls)
        },
    }


def cost_in_words(cost: dict[str, Any]) -> str:
    """One line: parameters in millions, memory as float32."""
    parts = [f"trains {_millions(cost['trained_parameters'])}"]
    if cost["own_parameters"]:
        parts[0] += f" (of its own {_millions(cost['own_parameters'])})"
    if cost["held_while_training"]:
        held = cost["held_while_training"]
        parts.append(f"holds {_millions(held)} more while training ({4 * held / 2**20:,.0f} MiB)")
    if cost["kept_beside_the_model"]:
        kept = cost["kept_beside_the_model"]
        parts.append(f"keeps {_millions(kept)} beside the model ({4 * kept / 2**20:,.0f} MiB)")
    return "; ".join(parts) + (f"; {cost['remark']}" if cost["remark"] else "")


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} M" if count >= 1e4 else f"{count:,}"


@cache
def _model_without_values() -> Clip:
    """ViT-B/16 with shapes only: nothing is loaded or computed."""
    config = open_clip.get_model_config(MEASURE)
    with torch.device("meta"):
        model = open_clip.CLIP(**config)
    return Clip(
        model, open_clip.get_tokenizer(MEASURE), Preprocess(224, (0, 0, 0), (1, 1, 1)), ModelSpec(MEASURE), config
    )
