"""A head: images per second that are embedded for it, and the seconds that it takes to fit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tasso.config import unwrap
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.timing import describe_machine, reset_peak_memory, time_calls
from tasso.heads import ClassKey, collect
from tasso.heads.collect import TOGETHER
from tasso.training.engine import peak_memory_gib


def bench_head(
    options: Mapping[str, Any], *, classes: int = 200, images: int = 10_000, rounds: int = 3
) -> dict[str, Any]:
    """Embed images that are on the device already, as `--method frozen` does, and fit a head to random features.

    Args:
        classes: of the task.
        images: that the head is fitted to; up to 1,024 are embedded.
    """
    options = {"head": "lda", **options, "method": "frozen"}
    learner = random_learner(options, classes=classes, images=min(images, 1024))
    device, task, run_head = learner.device, learner.sequence.tasks[0], unwrap(learner.head)
    pixels = learner.data.cached(task.train, "random images")
    inference, head = run_head.inference(learner.method.inference({})), run_head.head
    columns = head.add_classes([ClassKey("", str(number)) for number in range(classes)])
    reset_peak_memory(device)
    embedding = time_calls(
        lambda: collect(inference, pixels, task.train.labels, columns), device, warm_up=1, rounds=rounds, calls=1
    )
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal((images, head.width), dtype=np.float32))
    features = torch.nn.functional.normalize(drawn.to(device), dim=-1)
    labels = torch.arange(images, device=device) % classes

    def fit() -> None:
        moments = head.no_moments()
        for rows in range(0, images, TOGETHER):
            moments.add(features[rows : rows + TOGETHER], labels[rows : rows + TOGETHER])
        head.add(moments)
        head.logits(features[:1], columns, torch.zeros(1, classes, device=device), features.new_zeros(1, 0))

    fitting = time_calls(fit, device, warm_up=1, rounds=rounds, calls=1)
    return {
        "what": "head",
        **describe_machine(device),
        "model": str(learner.clip.spec),
        "precision": learner.config.precision,
        "head": learner.config.head,
        "images": images,
        "classes": classes,
        "features": head.width,
        "state_mib": round(sum(tensor.nbytes for tensor in head.state_dict().values()) / 2**20, 1),
        "images_per_second": round(len(pixels) / embedding.seconds, 1),
        "fit_seconds": round(fitting.seconds, 3),
        **peak_memory_gib(device),
    }
