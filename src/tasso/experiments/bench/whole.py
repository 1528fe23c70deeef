"""What a whole sequence takes at the paper's sizes, from the rates of steps and evaluation measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasso.data.catalogue import MTIL_DATA_SETS
from tasso.experiments.bench.evaluation import bench_eval
from tasso.experiments.bench.step import bench_step
from tasso.training.engine import planned_steps


def bench_run(options: Mapping[str, Any], *, images: int = 4096, **how: Any) -> dict[str, Any]:
    """Steps of the paper's eight tasks and nine evaluations on all of its test images."""
    step = bench_step(options, **how)
    evaluation = bench_eval(options, images=images)
    batch = step["batch"][0]
    steps = sum(planned_steps("code", data_set.train, batch) for data_set in MTIL_DATA_SETS)
    tests = sum(data_set.test for data_set in MTIL_DATA_SETS)
    training = steps * step["seconds_ms"] / 1e3
    testing = (len(MTIL_DATA_SETS) + 1) * tests / evaluation["images_per_second"]
    return {
        **step,
        "what": "run",
        "evaluation": evaluation,
        "steps": steps,
        "test_images": tests,
        "training_minutes": round(training / 60, 2),
        "evaluation_minutes": round(testing / 60, 2),
        "minutes": round((training + testing + step["seconds_to_first_step"]) / 60, 2),
    }
