"""How many runs in parallel, and on which devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tasso.config import RunConfig, from_dict
from tasso.errors import ConfigError, ModelError
from tasso.experiments.sweep.execution import Execution
from tasso.experiments.sweep.jobs import Job

GIB = 2**30
# Beside the tensors of a run: CUDA's context, workspaces of libraries and the private memory of CUDA graphs, and
# images that are cached on the device (mtil-mini: 37,000 of 64 × 64).
CONTEXT_BYTES = 1 * GIB
IMAGES_BYTES = GIB // 2
# Bytes that a transformer layer keeps for the backward pass, per token and unit of width: 34 in mixed precision
# (Korthikanti et al. 2022, without attention scores, which fused attention does not keep), twice that in float32.
ACTIVATION_BYTES = {"float32": 68, "other": 34}
WEIGHT_BYTES = 4 + 4 + 4 + 4 + 4  # weight, gradient, two moments, and a teacher's or an anchor's weight
MANY_CLASSES = 200  # texts per step for methods that train the text encoder
# For what the estimate leaves out: memory that the allocator reserves without using it, evaluation.
MARGIN = 1.25


def devices_for(jobs: Sequence[Job], execution: Execution) -> list[str]:
    """One entry per run in parallel: its device.

    By default there is one on a CPU; on a GPU as many as its free memory holds by `run_bytes`, but no more than there
    are cores for; and all GPUs are used that PyTorch sees, or the one that `device` names.
    """
    import torch

    from tasso.training.engine import choose_device

    device, gpus, at_once = execution.device, execution.gpus, execution.at_once
    chosen = choose_device(device)
    if chosen.type == "cpu":
        if gpus:
            raise ConfigError("gpus: there is no GPU to use" if device == "auto" else f"gpus: the device is {device}")
        return ["cpu"] * (at_once or 1)
    named = [chosen.index] if chosen.index is not None else list(range(torch.cuda.device_count()))
    numbers = list(gpus) if gpus else named
    for number in numbers:
        if not 0 <= number < torch.cuda.device_count():
            raise ConfigError(f"gpus: there is no GPU {number} to use; PyTorch sees {torch.cuda.device_count()}")
    if at_once is None:
        free = min(torch.cuda.mem_get_info(number)[0] for number in numbers)
        at_once = fitting(jobs, free, cores_for_each(len(numbers)))
    return [f"cuda:{number}" for _ in range(at_once) for number in numbers]


def cores_for_each(count: int) -> int:
    """How many of this machine's cores there are for each of so many; at least one."""
    return max(1, (os.cpu_count() or 1) // count)


def fitting(jobs: Sequence[Job], free_bytes: int, most: int) -> int:
    """How many of the largest of these runs fit into this much memory; at least one, at most `most`."""
    needed = max((run_bytes(from_dict(job.options, job.name)) for job in jobs), default=free_bytes)
    return max(1, min(most, len(jobs), free_bytes // needed))


def run_bytes(config: RunConfig) -> int:
    """GPU memory that a run needs at most, estimated from the model's sizes; see the constants for what counts.

    All of the model is taken as trained, and a batch as task and reference images together, so that the method does
    not matter much. A model whose sizes cannot be read is taken to need a GPU of its own.
    """
    from tasso.models.loading import architecture_of

    try:
        sizes = architecture_of(config.model)
        vision, text = _layers(sizes["vision_cfg"]), _layers(sizes["text_cfg"])
        patches = (int(sizes["vision_cfg"]["image_size"]) // int(sizes["vision_cfg"]["patch_size"])) ** 2 + 1
        tokens_per_text = int(sizes["text_cfg"].get("context_length", 77))
        vocabulary = int(sizes["text_cfg"].get("vocab_size", 49408))
    except (KeyError, TypeError, ValueError, ModelError):  # not a vision transformer, or checked later
        return 2**60
    parameters = sum(12 * layers * width**2 for layers, width in (vision, text)) + vocabulary * text[1]
    images = (config.batch_size + config.reference_batch_size) // config.accumulate
    per_unit = ACTIVATION_BYTES["float32" if config.precision == "float32" else "other"]
    tokens = [(images * patches, vision), (MANY_CLASSES * tokens_per_text, text)]
    activations = sum(per_unit * count * layers * width for count, (layers, width) in tokens)
    return CONTEXT_BYTES + int(MARGIN * (WEIGHT_BYTES * parameters + activations + IMAGES_BYTES))


def _layers(tower: dict[str, Any]) -> tuple[int, int]:
    """Layers and width of a transformer."""
    return int(tower["layers"]), int(tower["width"])
