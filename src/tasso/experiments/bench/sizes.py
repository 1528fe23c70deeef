"""Peak memory and time of a training step for models of several sizes, beside the memory that a run would announce."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tasso.config import from_dict
from tasso.errors import ConfigError, TassoError
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.step import begin_second_task, full_options
from tasso.experiments.bench.timing import describe_machine, reset_peak_memory, time_calls
from tasso.training.engine import PRECISIONS, choose_device, choose_precision, peak_memory_gib
from tasso.training.memory import GIB, memory_needed

log = logging.getLogger("tasso")

MODELS = ("ViT-B-32", "ViT-B-16", "ViT-L-14", "ViT-L-14-336", "ViT-H-14", "ViT-B-16-SigLIP")


def bench_sizes(
    options: Mapping[str, Any],
    *,
    classes: int = 100,
    rounds: int = 3,
    calls: int | None = None,
    minutes: float = math.inf,
    save: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Steps of one method in full and with LoRA, with and without checkpointed activations.

    A row that cannot be measured, as for want of memory, says why; the others go on.

    Args:
        options: options of a run; `model` may name several, separated by commas. Nothing is compiled unless asked for.
        rounds, calls: as in `time_calls`.
        minutes: no row begins after this time.
        save: called with the result after each row, so that rows are kept if a later one ends the process.
    """
    for key in ("tune", "checkpoint_activations"):
        if key in options:
            raise ConfigError(f"{key}: sizes measures all of full, lora, with and without checkpointed activations")
    config = from_dict({**options, "tune": "lora"}, "bench")
    device = choose_device(config.device)
    result = {
        "what": "sizes",
        **describe_machine(device),
        "model": config.model,
        "method": config.method,
        "batch": [config.batch_size, config.reference_batch_size],
        "classes": classes,
        "precision": PRECISIONS[choose_precision(config.precision, device)],
        "optimizer_precision": config.optimizer_precision,
        "lora_rank": config.lora_rank,
        "rows": [],
    }
    end = time.monotonic() + 60 * minutes
    for model, tune, checkpointed in itertools.product(config.model.split(","), ("full", "lora"), (False, True)):
        row: dict[str, Any] = {"model": model, "tune": tune, "checkpoint_activations": checkpointed}
        given = options if tune == "lora" else full_options(options)
        try:
            if time.monotonic() > end:
                raise TassoError(f"not measured within {minutes:g} minutes")
            row |= _measure({"compile": "off", **given, **row}, classes, rounds, calls)
        except (RuntimeError, TassoError) as error:  # PyTorch's errors about memory are of the first kind
            row["error"] = str(error).splitlines()[0]
        log.info("%s", ", ".join(f"{key} {value}" for key, value in row.items()))
        result["rows"].append(row)
        save(result)
    return result


def _measure(options: dict[str, Any], classes: int, rounds: int, calls: int | None) -> dict[str, Any]:
    reset_peak_memory(choose_device(options.get("device", "auto")))
    learner = random_learner(options, classes=classes)
    training = begin_second_task(learner)
    try:
        needed = memory_needed(training)
        timing = time_calls(training.advance, learner.device, rounds=rounds, calls=calls)
        return {
            **timing.to_dict(),
            **peak_memory_gib(learner.device),
            "estimated_gib": round(needed.total / GIB, 4),
            "trained_parameters": training.trainable_parameters,
            "cuda_graphs": training.captured is not None,
        }
    finally:
        training.close()
