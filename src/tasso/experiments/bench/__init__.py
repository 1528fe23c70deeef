"""`tasso bench`: speed of training steps, evaluation, reading images, a full run at the paper's sizes; and memory."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tasso.experiments.bench.evaluation import bench_eval
from tasso.experiments.bench.full_run import bench_run
from tasso.experiments.bench.images import bench_images
from tasso.experiments.bench.sizes import MODELS, bench_sizes
from tasso.experiments.bench.step import bench_step

__all__ = ["BENCHES", "bench_eval", "bench_images", "bench_run", "bench_sizes", "bench_step", "measure"]

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "step": bench_step,
    "images": bench_images,
    "eval": bench_eval,
    "run": bench_run,
    "sizes": bench_sizes,
}
MODEL = "ViT-B-16-quickgelu"
# For two CPU cores and a minute: options of a run, and arguments of each bench.
QUICK: dict[str, Any] = {"model": "nano", "batch_size": 8, "reference_batch_size": 16, "eval_batch_size": 64}
QUICK_ARGS: dict[str, dict[str, int]] = {
    "step": {"rounds": 3, "calls": 2},
    "eval": {"images": 128},
    "images": {"rounds": 2, "calls": 2, "images": 192, "batches": 2},
    "run": {"rounds": 3, "calls": 2, "images": 128},
    "sizes": {"rounds": 2, "calls": 1},
}


def measure(
    what: str,
    options: Mapping[str, Any],
    *,
    quick: bool,
    classes: int | None = None,
    baselines: Collection[str] = (),
    **rows: Any,
) -> dict[str, Any]:
    """Run one bench.

    Args:
        what: a key of `BENCHES`.
        options: options of a run, where they differ from those of the bench.
        quick: a few steps with nano.
        classes: classes per task, if not the default.
        baselines: what to time a step against: reference (the authors' recipe), eager.
        rows: `minutes` and `save` of `bench_sizes`, the only one with rows.
    """
    args: dict[str, Any] = dict(QUICK_ARGS[what]) if quick else {}
    if classes:
        args["classes"] = classes
    if what in ("step", "run"):
        args |= dict.fromkeys(baselines, True)
    if what == "sizes":
        args |= rows
    model = ",".join(MODELS) if what == "sizes" else MODEL
    return BENCHES[what]({**(QUICK if quick else {"model": model}), **options}, **args)
