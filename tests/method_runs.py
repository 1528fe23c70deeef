"""Short runs of any method on the tiny model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tasso.config import from_dict
from tasso.methods import METHODS, build_method
from tasso.training.learner import Learner
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

# Hyper-parameters that fit the tiny model.
SMALL: dict[str, dict[str, Any]] = {
    "tasso": {"rank": 6},
    "tasso-both": {"rank": 6, "anchors_per_step": 2, "delta": 0.3},  # fewer anchors than there are
    "zscl": {"average_every": 2},
    "icarl": {"memory": 20},
    "gift": {"generator": "atlas", "images": 24},
    "moe-adapters": {"experts": 4, "hidden": 8},
}

BEYOND_THE_PAPER = {"tasso-both", "frozen"}  # not in its tables

LEARNING = sorted(name for name, cls in METHODS.items() if cls.learns)
PARTABLE = sorted(name for name in LEARNING if not build_method({"name": name}).whole_batch)

# MoE-Adapters draws random numbers for every sample, so its parts differ from the whole.
REPEATABLE = [name for name in PARTABLE if name != "moe-adapters"]


def options_for(name: str) -> dict[str, Any]:
    return {"name": name, **SMALL.get(name, {})}


def learner_for(quick: dict[str, Any], **more: Any) -> Learner:
    config, method = resolve(from_dict({**quick, **more}))
    folder = RunFolder(config.out)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.checkpoints.mkdir(exist_ok=True)
    return Learner(config, method, folder)


def learn_first_task(quick: dict[str, Any], **more: Any) -> None:
    """Leave a run folder in which the first task has been learned."""
    learner_for(quick, **more)._learn_task(0)


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
