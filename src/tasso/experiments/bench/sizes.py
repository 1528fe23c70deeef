"""Peak memory and time of a training step for models of several sizes, beside the memory that a run would announce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tasso.errors import ConfigError, TassoError
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.step import IMAGES, begin_second_task, full_options
from tasso.experiments.bench.timing import describe_machine, reset_peak_memory, time_calls
from tasso.training.engine import choose_device, peak_memory_gib
from tasso.training.memory import GIB, memory_needed

MODELS = ("ViT-B-32", "ViT-B-16", "ViT-L-14", "ViT-L-14-336", "ViT-H-14", "ViT-B-16-SigLIP")


def bench_sizes(
    options: Mapping[str, Any], *, classes: int = 100, rounds: int = 3, calls: int | None = None
) -> dict[str, Any]:
    """Steps of one method in full and with LoRA, with and without checkpointed activations.

    Args:
        options: options of a run; `model` may name several, separated by commas. Nothing is compiled unless asked for.
        classes: classes per task.
        rounds: number of timed rounds; the median counts.
        calls: steps per round; None: as many as take about half a second.
    """
    for key in ("tune", "checkpoint_activations"):
        if key in options:
            raise ConfigError(f"{key}: sizes measures all of full, lora, with and without checkpointed activations")
    rows = []
    for model in options["model"].split(","):
        for tune in ("full", "lora"):
            for checkpointed in (False, True):
                given = options if tune == "lora" else full_options(options)
                row = {"model": model, "tune": tune, "checkpoint_activations": checkpointed}
                chosen = {"steps": 10**6, "compile": "off", **given, **row}
                try:
                    row |= _measure(chosen, classes, rounds, calls)
                except (torch.OutOfMemoryError, TassoError) as error:
                    row["error"] = str(error).splitlines()[0]
                rows.append(row)
    machine = describe_machine(choose_device(options.get("device", "auto")))
    return {"what": "sizes", **machine, **{key: options[key] for key in ("model", "method")}, "rows": rows}


def _measure(options: dict[str, Any], classes: int, rounds: int, calls: int | None) -> dict[str, Any]:
    reset_peak_memory(choose_device(options.get("device", "auto")))
    learner = random_learner(options, classes=classes, images=IMAGES)
    training = begin_second_task(learner)
    try:
        needed = memory_needed(training)
        timing = time_calls(training.advance, learner.device, rounds=rounds, calls=calls)
        return {
            **timing.to_dict(),
            **peak_memory_gib(learner.device),
            "estimated_gib": round(needed.total / GIB, 4),
            "trained_parameters": training.trainable_parameters,
        }
    finally:
        training.close()
