"""The facts about each method, from the methods themselves."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import open_clip
import torch

from tasso.data.images import Preprocess
from tasso.methods.base import numel
from tasso.methods.defaults import shown_defaults
from tasso.methods.registry import import_method
from tasso.models.clip import Clip, ModelSpec

TRAINS = {"visual": "image tower", "both": "both towers", "none": "added modules only"}
TEACHERS = {"previous": "previous task's model", "pretrained": "pretrained model"}
MODEL = "ViT-B-16-quickgelu"


def describe(name: str) -> dict[str, Any]:
    """A method's facts, imported if need be; costs are those at ViT-B/16 with its default options."""
    cls = import_method(name)
    method, clip = cls(), _meta_model()
    method.resolve_width(clip.dim)
    found, towers = method.cost(clip), numel(clip.parameters_of(method.towers).values())
    cost = {
        "model": MODEL,
        "trainable_parameters": towers + found.trainable,
        "own_parameters": found.trainable,
        "training": found.training,
        "checkpoint": found.checkpoint,
        "note": found.note,
    }
    return {
        "title": cls.title,
        "summary": cls.summary,
        "trains": TRAINS[method.towers],
        "teachers": " and ".join(TEACHERS[teacher] for teacher in method.teachers) or "none",
        "images": ", ".join(request.name for request in method.image_requests()) or "none beside the task's",
        "cost": {**cost, "words": cost_in_words(cost)},
        "run_defaults": dict(cls.run_defaults),
        "defaults": shown_defaults(cls),
        "source": cls.source,
        "verified": cls.verified,
        "options": {
            f.name: {"default": getattr(method, f.name), "help": f.metadata["help"]} for f in dataclasses.fields(cls)
        },
    }


def cost_in_words(cost: dict[str, Any]) -> str:
    """One line: parameters in millions, memory as float32."""
    parts = [f"trains {_millions(cost['trainable_parameters'])}"]
    if cost["own_parameters"]:
        parts[0] += f" (of its own {_millions(cost['own_parameters'])})"
    for key, text in (("training", "more in memory while training"), ("checkpoint", "more in a checkpoint")):
        if count := cost[key]:
            parts.append(f"{_millions(count)} {text} ({4 * count / 2**20:,.0f} MiB)")
    return "; ".join(parts) + (f"; {cost['note']}" if cost["note"] else "")


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} M" if count >= 1e4 else f"{count:,}"


@cache
def _meta_model() -> Clip:
    """ViT-B/16 on the meta device: shapes only, nothing is loaded or computed."""
    config = open_clip.get_model_config(MODEL)
    with torch.device("meta"):
        model = open_clip.CLIP(**config)
    return Clip(model, open_clip.get_tokenizer(MODEL), Preprocess(224, (0, 0, 0), (1, 1, 1)), ModelSpec(MODEL), config)
