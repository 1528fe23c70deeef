"""Speed, as ratios within one run: steps, evaluation, images, and what they add up to."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tasso.experiments.bench.evaluation import bench_eval
from tasso.experiments.bench.images import bench_images
from tasso.experiments.bench.measure import QUICK, QUICK_HOW
from tasso.experiments.bench.step import bench_step
from tasso.experiments.bench.whole import bench_run

__all__ = ["BENCHES", "bench_eval", "bench_images", "bench_run", "bench_step", "measure"]

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "step": bench_step,
    "images": bench_images,
    "eval": bench_eval,
    "run": bench_run,
}
MODEL = "ViT-B-16-quickgelu"


def measure(
    what: str, options: Mapping[str, Any], *, quick: bool, classes: int | None = None, beside: Collection[str] = ()
) -> dict[str, Any]:
    """One bench at its usual size, or a quick one with nano.

    Args:
        options: those of a run, where they differ from the bench's own.
        beside: what a step is compared with: reference, eager.
    """
    how: dict[str, Any] = dict(QUICK_HOW[what]) if quick else {}
    if classes:
        how["classes"] = classes
    if what in ("step", "run"):
        how |= dict.fromkeys(beside, True)
    return BENCHES[what]({**(QUICK if quick else {"model": MODEL}), **options}, **how)
