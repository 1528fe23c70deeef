"""`tasso bench`: speed of training steps, of several runs at once, of evaluation, heads, reading images, a full run at
the paper's sizes; and memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasso.experiments.bench.budget import Rule
from tasso.experiments.bench.evaluation import bench_eval
from tasso.experiments.bench.full_run import bench_run
from tasso.experiments.bench.head import bench_head
from tasso.experiments.bench.images import bench_images
from tasso.experiments.bench.many_runs import bench_sweep
from tasso.experiments.bench.sizes import MODELS, bench_sizes
from tasso.experiments.bench.step import bench_step
from tasso.training.engine import choose_device

__all__ = [
    "BENCHES", "bench_eval", "bench_head", "bench_images", "bench_run", "bench_sizes", "bench_step", "bench_sweep",
    "measure", "needed_by",
]  # fmt: skip

MODEL = "ViT-B-16-quickgelu"
QUICK: dict[str, Any] = {"model": "nano", "batch_size": 8, "reference_batch_size": 16, "eval_batch_size": 64}


@dataclass(frozen=True)
class Bench:
    """One bench.

    Attributes:
        run: takes options of a run, and the arguments below.
        quick: its arguments for two CPU cores and a minute, beside the options `QUICK`.
        takes: what a user may choose.
        model: the default.
    """

    run: Callable[..., dict[str, Any]]
    quick: Mapping[str, int]
    takes: tuple[str, ...] = ("classes",)
    model: str = MODEL


STEP = ("classes", "reference", "eager")
BENCHES = {
    "step": Bench(bench_step, {"rounds": 3, "calls": 2}, STEP),
    "images": Bench(bench_images, {"rounds": 2, "calls": 2, "images": 192, "batches": 2}),
    "eval": Bench(bench_eval, {"images": 128}),
    "head": Bench(bench_head, {"images": 256, "rounds": 1}),
    "run": Bench(bench_run, {"rounds": 3, "calls": 2, "images": 128}, STEP),
    "sizes": Bench(bench_sizes, {"rounds": 2, "calls": 1}, ("classes", "minutes", "save"), ",".join(MODELS)),
    "sweep": Bench(bench_sweep, {"seconds": 1}, ("classes", "jobs"), "nano"),
}


def needed_by(rules: Sequence[Rule], options: Mapping[str, Any]) -> list[str]:
    """The benches that these rules judge on the device of a run with these options."""
    kind = choose_device(options.get("device", "auto")).type
    return [what for what in BENCHES if any((rule.what, rule.on) == (what, kind) for rule in rules)]


def measure(what: str, options: Mapping[str, Any], *, quick: bool, **given: Any) -> dict[str, Any]:
    """Run one bench.

    Args:
        options: options of a run, where they differ from those of the bench.
        quick: a few steps with nano.
        given: arguments; those that are None, or that this bench does not take, are left out.
    """
    bench = BENCHES[what]
    chosen = {key: value for key, value in given.items() if key in bench.takes and value is not None}
    defaults = QUICK if quick else {"model": bench.model}
    return bench.run({**defaults, **options}, **{**(bench.quick if quick else {}), **chosen})
