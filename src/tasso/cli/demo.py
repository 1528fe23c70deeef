"""The whole idea in a minute or two: a small CLIP learns drawn tasks one after the other, by plain fine-tuning, with
TASSO and with TASSO on both towers, and a page shows what each of them forgot."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
from PIL import Image

from tasso.config import RunConfig, from_dict
from tasso.data import BENCHMARKS, atlas, task_order
from tasso.data.images.shared import place_for_images, sharing
from tasso.data.sequences import order
from tasso.errors import RunError
from tasso.experiments.paper import dry_run, make_setup, run_plans
from tasso.experiments.plans import Plan, Setup, chosen
from tasso.experiments.sweep.run_jobs import Execution, Summary
from tasso.methods import METHODS
from tasso.report import Gallery, Table, combined_table, metrics, read_runs, write_page
from tasso.report.paper.evaluation import read_evaluation
from tasso.report.paper.figures import shown_runs
from tasso.report.paper.report import write_evaluation
from tasso.training.learner import learn

log = logging.getLogger("tasso")

Options = Mapping[str, Any]  # of all runs of the demo, in the place of those below

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
METHODS_SHOWN = ("finetune", "tasso", "tasso-both")

# With --full: the plans that one run of each method on S1 is enough for. Learning rates are those of `tasso paper`.
FULL: dict[str, Any] = {"steps": 150}
FULL_PLANS = ("main", "both-towers", "matrices", "alignment", "datasets", "sequences")


INTRO = (
    "A small CLIP model learns drawn image-classification tasks one after the other. After each task it is "
    "tested on all of them: those it has learned, to see what it forgot, and those still to come, to see what "
    "is left of its zero-shot ability. All images are drawn by code."
)


def demo_config(method: str, out: Path, seed: int, given: Options = MappingProxyType({})) -> RunConfig:
    """The demo's run of one method; all get the same steps and images."""
    shared = {"benchmark": "atlas", "model": "nano", "seed": seed, **QUICK, **given}
    return from_dict({**shared, "method": method, "label": METHODS[method].title, "out": str(out / method)})


def plan_demo(out: Path, seed: int, given: Options, *, full: bool) -> list[str]:
    """What the demo would do, in words."""
    if full:
        return dry_run(*full_plans(seed, given), out, Execution())
    configs = [demo_config(name, out, seed, given) for name in METHODS_SHOWN]
    lines = [f"{config.out}: {len(task_order(config))} tasks, {config.steps} steps per task" for config in configs]
    return lines if given else [*lines, "time: one to three minutes on two CPU cores"]


def run_demo(out: Path, seed: int, given: Options) -> tuple[Table, str, Path]:
    """Run the demo (or what is left of it) and write its page; returns the table, what it means, and the page."""
    configs = [demo_config(name, out, seed, given) for name in METHODS_SHOWN]
    with place_for_images(out) as place, sharing(place):
        for name, config in zip(METHODS_SHOWN, configs, strict=True):
            log.info("learning with %s", METHODS[name].title)
            learn(config)
    runs = read_runs(config.out for config in configs)
    sentence = meaning(runs)
    images = gallery(runs["order"].iloc[0])
    page = write_page(runs, out / "report.html", title="tasso demo", intro=INTRO, gallery=images, sentence=sentence)
    return combined_table(runs), sentence, page


def full_plans(seed: int, given: Options = MappingProxyType({})) -> tuple[list[Plan], Setup]:
    """All methods on S1 of all drawn domains, and every plan that these runs can fill."""
    common = {"benchmark": "atlas", "model": "nano", **FULL, **given}
    setup = make_setup(common, main_seeds=(seed,), sequences=("S1",))
    return [replace(plan, seeds=(seed,)) for plan in chosen(FULL_PLANS)], setup


def run_full_demo(out: Path, seed: int, given: Options) -> tuple[Table, str, Path, Summary]:
    """The same with all domains and methods, and the report of `tasso paper`."""
    plans, setup = full_plans(seed, given)
    tasks = order(BENCHMARKS["atlas"].tasks, "S1", setup.common.get("limit_tasks"))
    summary = run_plans(plans, setup, out, Execution())
    if summary.stopped:
        raise KeyboardInterrupt("stopped; the same command goes on from what is saved")
    evaluation = read_evaluation(out / "runs")
    runs = shown_runs(evaluation, plans)
    sentence = meaning(runs)
    write_evaluation(evaluation, out, plans, gallery=gallery(tasks), sentence=sentence)
    if not sentence:
        raise RunError("\n".join(summary.lines()))
    return combined_table(runs), sentence, out / "index.html", summary


def meaning(runs: pd.DataFrame) -> str:
    """What the runs show about TASSO beside fine-tuning, with their own numbers; nothing if one of them is missing."""
    shown = [name for name in METHODS_SHOWN if name in set(runs["method"])]
    last = {name: metrics(runs[runs["method"] == name], "mtil").iloc[-1] for name in shown}
    if not {"finetune", "tasso"} <= last.keys():
        return ""
    plain, ours = last["finetune"], last["tasso"]
    both = f"; on both towers it ends at {last['tasso-both']['accuracy']:.1f} %" if "tasso-both" in last else ""
    return (
        f"After {len(runs['order'].iloc[0])} tasks learned one after the other, plain fine-tuning {_lost(plain)}; "
        f"TASSO {_lost(ours)}, and ends at {ours['accuracy']:.1f} % accuracy against {plain['accuracy']:.1f} %{both}."
    )


def _lost(found: Mapping[str, float]) -> str:
    """How much was forgotten, and what became of the zero-shot ability (both are signed)."""
    degraded = found["zero_shot_degradation"]
    ability = f"lost {degraded:.1f} points" if degraded > 0 else f"gained {-degraded:.1f} points"
    return f"has forgotten {found['forgetting']:.1f} points of what it had learned and {ability} on tasks still to come"


def gallery(tasks: Sequence[str]) -> Gallery:
    """One image per class, as the model sees it."""
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
