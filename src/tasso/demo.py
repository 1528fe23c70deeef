"""The whole idea in three minutes: a small CLIP learns drawn tasks one after the other, once by plain fine-tuning and
once with TASSO, and a page shows what each of them kept."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tasso.config import RunConfig, from_dict
from tasso.learner import learn
from tasso.methods import METHODS
from tasso.report import Gallery, RunResult, Table, combined_table, read_run, write_page
from tasso.tasks import atlas

log = logging.getLogger("tasso")

# Sized for two CPU cores. The learning rate is the one that is best for fine-tuning (results/README.md shows all that
# were tried): the comparison is not won by weakening the other side.
QUICK: dict[str, Any] = {
    "limit_tasks": 5,
    "steps": 20,
    "batch_size": 16,
    "reference_batch_size": 12,
    "reference_images": 1000,
    "test_per_class": 6,
    "lr": 1e-4,
}
FULL: dict[str, Any] = {"steps": 150, "lr": 1e-4}
# Where another rate than 1e-4 was clearly better on mtil-mini (results/README.md).
FULL_RATES = {"moe-adapters": 3e-3, "gift": 3e-3, "zscl": 1e-5}
HYPER: dict[str, dict[str, Any]] = {"tasso": {"rank": 72}, "gift": {"generator": "atlas"}}
QUICK_METHODS = ("finetune", "tasso")


def demo_config(method: str, out: Path, seed: int, *, full: bool = False) -> RunConfig:
    """The demo's run of one method; all methods get the same steps and pictures."""
    hyper: dict[str, Any] = {"name": method, **HYPER.get(method, {})}
    options = {**FULL, "lr": FULL_RATES.get(method, FULL["lr"])} if full else QUICK
    shared = {"benchmark": "atlas", "model": "nano", "seed": seed}
    return from_dict({**shared, **options, "method": hyper, "label": METHODS[method].title, "out": str(out / method)})


def run_demo(out: Path, *, seed: int = 1102, full: bool = False) -> tuple[Table, str, Path]:
    """Run the demo (or what is left of it) and write its page; returns the table, what it means, and the page."""
    names = sorted(METHODS, key=lambda name: (name == "tasso", name)) if full else QUICK_METHODS
    results = []
    for name in names:
        log.info("learning with %s", METHODS[name].title)
        config = demo_config(name, out, seed, full=full)
        learn(config)
        results.append(read_run(config.out))
    sentence = meaning(results)
    page = write_page(
        results,
        out / "report.html",
        title="tasso demo",
        intro=(
            "A small CLIP model learns drawn image-classification tasks one after the other. After each task it is "
            "tested on all of them: those it has learned, to see what it forgot, and those still to come, to see what "
            "is left of its zero-shot ability. All pictures are drawn by code."
        ),
        gallery=gallery(results[0].tasks),
        sentence=sentence,
    )
    return combined_table(results), sentence, page


def meaning(results: Sequence[RunResult]) -> str:
    """What the run shows about TASSO beside fine-tuning, in words, with its own numbers."""
    by_method = {result.method: result.setting("mtil").metrics for result in results}
    plain, ours = by_method["finetune"], by_method["tasso"]
    return (
        f"After {len(results[0].tasks)} tasks learned one after the other, plain fine-tuning {_lost(plain)}; "
        f"TASSO {_lost(ours)}, and ends at {_value(ours, 'accuracy'):.1f} % accuracy against "
        f"{_value(plain, 'accuracy'):.1f} %."
    )


def _lost(metrics: Mapping[str, float | None]) -> str:
    """How much was forgotten, and what became of the zero-shot ability (both are signed)."""
    forgotten, degraded = _value(metrics, "forgetting"), _value(metrics, "zero_shot_degradation")
    ability = f"lost {degraded:.1f} points" if degraded > 0 else f"gained {-degraded:.1f} points"
    return f"has forgotten {forgotten:.1f} points of what it had learned and {ability} on tasks still to come"


def _value(metrics: Mapping[str, float | None], key: str) -> float:
    value = metrics[key]
    assert value is not None, "the demo learns several tasks, so every metric is there"
    return value


def gallery(tasks: Sequence[str]) -> Gallery:
    """One picture a class, as the model sees it."""
    return {
        name: [
            (class_name, _png(atlas.render(name, label, 0, split="test")))
            for label, class_name in enumerate(atlas.DOMAINS[name].class_names)
        ]
        for name in tasks
    }


def _png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
