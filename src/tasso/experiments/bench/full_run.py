"""Estimated time of a full run at the paper's sizes, from the measured rates of steps and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasso.data.benchmarks import MTIL
from tasso.experiments.bench.evaluation import bench_eval
from tasso.experiments.bench.step import bench_step
from tasso.training.engine import planned_steps


def bench_run(options: Mapping[str, Any], *, images: int = 4096, **step_args: Any) -> dict[str, Any]:
    """The steps of the paper's eight tasks, and nine evaluations on all test images.

    Args:
        images: images to evaluate on, for the rate.
        step_args: arguments of `bench_step`.
    """
    step = bench_step(options, **step_args)
    evaluation = bench_eval(options, images=images)
    batch_size = step["batch"][0]
    steps = sum(planned_steps("code", data_set.train, batch_size) for data_set in MTIL.data_sets)
    test_images = sum(data_set.test for data_set in MTIL.data_sets)
    training = steps * step["seconds_ms"] / 1e3
    evaluating = (len(MTIL.data_sets) + 1) * test_images / evaluation["images_per_second"]
    return {
        **step,
        "what": "run",
        "evaluation": evaluation,
        "steps": steps,
        "test_images": test_images,
        "training_minutes": round(training / 60, 2),
        "evaluation_minutes": round(evaluating / 60, 2),
        "minutes": round((training + evaluating + step["seconds_to_first_step"]) / 60, 2),
    }
