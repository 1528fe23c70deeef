"""What a run takes where it says nothing: from its protocol, its method, and the size of its model.

The methods' own defaults are those of their authors, who train models like ViT-B/16. Small models need larger rates:
`rates-nano.json` has those chosen for nano on validation images (results/README.md).
"""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from tasso.config import METHOD, RunConfig
from tasso.files import parse_json
from tasso.methods.base import Method
from tasso.methods.registry import build_method, find_method
from tasso.models.loading import embedding_width, usual_prompt

NANO_RATES = Path(__file__).with_name("rates-nano.json")
SMALL = 384  # models with embeddings up to this length take nano's options
CHOSEN_WITH = "code"  # the protocol of the runs they were chosen by; what another one says counts more than they do


def with_defaults(config: RunConfig) -> tuple[RunConfig, Method]:
    """The run with what protocol, method and model say where it says nothing, and its method."""
    width = embedding_width(config.model)
    cls = find_method(config.method["name"])
    hyper = {
        key.removeprefix(METHOD): value for key, value in options_for(cls.name, width).items() if key.startswith(METHOD)
    }
    if config.protocol != CHOSEN_WITH:
        hyper = {name: value for name, value in hyper.items() if name not in cls.protocols[config.protocol]}
    method = build_method({**hyper, **config.method}, config.protocol)
    method.resolve_width(width)
    if config.template is None:
        config = dataclasses.replace(config, template=usual_prompt(config.model))
    return config.resolved(run_defaults(cls, width)), method


def run_defaults(method: type[Method], width: int) -> dict[str, Any]:
    """Values of the run's own options for a model with embeddings of this length."""
    chosen = {key: value for key, value in _chosen(method, width).items() if not key.startswith(METHOD)}
    return {**method.run_defaults, **chosen}


def options_for(method: str, width: int) -> dict[str, Any]:
    """What was chosen for models with embeddings of this length; `method.NAME` is a hyper-parameter."""
    return dict(_nano().get(method, {})) if width <= SMALL else {}


def _chosen(method: type[Method], width: int) -> dict[str, Any]:
    """As `options_for`; a method from elsewhere that sets no rate takes that of fine-tuning."""
    known = method.name in _nano() or method.run_defaults is not Method.run_defaults
    return options_for(method.name if known else "finetune", width)


def shown_defaults(method: type[Method]) -> dict[str, str]:
    """Defaults that depend on the model, and all others of the run's own options, in words."""
    own: dict[str, Any] = {METHOD + field.name: field.default for field in dataclasses.fields(method)}
    own |= {METHOD + name: value for name, value in method.protocols[CHOSEN_WITH].items()}
    own |= method.run_defaults
    chosen = {key: value for key, value in _chosen(method, SMALL).items() if value != own[key]}
    shown = {key: f"{value} with small models such as nano, else {own[key]}" for key, value in chosen.items()}
    return {**{key: str(value) for key, value in method.run_defaults.items()}, **shown}


def rate_in_words(config: RunConfig, method: Method) -> str:
    """The learning rate of a run that names none, and where it is from; the configuration is resolved."""
    own = float(config.lr) == method.run_defaults["lr"]
    source = "its own" if own else "chosen for nano and other small models"
    return f"learning rate {float(config.lr):g}: {method.name}'s, {source}; --lr changes it"


@cache
def _nano() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = parse_json(NANO_RATES.read_text(encoding="utf-8"))
    return found
