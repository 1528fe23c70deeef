"""Images per second in evaluation, both settings together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasso.evaluation.accuracy import accuracy_rows
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.timing import describe_machine, reset_peak_memory, time_calls
from tasso.models.inference import usual_batch
from tasso.training.engine import peak_memory_gib


def bench_eval(
    options: Mapping[str, Any], *, classes: int = 347, images: int = 4096, rounds: int = 3
) -> dict[str, Any]:
    """Embed two test sets and score them for MTIL and MCIL; images are on the device already."""
    learner = random_learner(dict(options), classes=classes, images=64, test=images)
    tasks, device = learner.sequence.tasks, learner.device
    pixels = [learner.data.cached(task.evaluated, f"{task.name} {task.split}") for task in tasks]
    inference = learner.method.inference({task.name: task.class_names for task in tasks})
    reset_peak_memory(device)

    def evaluate() -> None:
        accuracy_rows(inference, tasks, pixels, learner.templates, learner.config.eval_batch_size)

    timing = time_calls(evaluate, device, warm_up=1, rounds=rounds, calls=1)
    return {
        "what": "eval",
        **describe_machine(device),
        "model": str(learner.clip.spec),
        "precision": learner.config.precision,
        "eval_batch_size": learner.config.eval_batch_size or usual_batch(learner.clip),
        "images": 2 * images,
        "classes": 2 * classes,
        **timing.to_dict(),
        "images_per_second": round(2 * images / timing.seconds, 1),
        **peak_memory_gib(device),
    }
