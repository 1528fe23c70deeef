"""Run the paper's plans: what they cost, their runs, and the arithmetic of a step. The report reads them afterwards."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasso.config import RunConfig, from_dict, unwrap
from tasso.data import BENCHMARKS, load_sequence, task_order, with_benchmark_options
from tasso.data.sequences import order
from tasso.data.steps import WHOLE, step_sizes
from tasso.errors import ConfigError, RunError, TassoError, no_such
from tasso.experiments.plans import TIMED, Plan, Setup, all_jobs
from tasso.experiments.record import RECORD, Arithmetic, make_record, read_record, write_record
from tasso.experiments.sweep import Job
from tasso.experiments.sweep.choose import read_rates
from tasso.experiments.sweep.devices import devices_for
from tasso.experiments.sweep.run_jobs import Execution, Summary, check, is_finished, run_jobs
from tasso.methods import METHODS, build_method
from tasso.methods.defaults import options_for, with_defaults
from tasso.models.loading import embedding_width
from tasso.progress import duration
from tasso.training.engine import planned_steps
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")

# Parts of the time per task.
SECONDS = ("preparing_seconds", "seconds", "evaluation_seconds")
# The options that the arithmetic of a step depends on.
RELEVANT = (
    "model", "method", "protocol", "batch_size", "reference_batch_size", "accumulate", "precision", "tune", "lora_rank",
    "checkpoint_activations",
)  # fmt: skip


def make_setup(
    common: Mapping[str, Any],
    *,
    rates: Path | None = None,
    by_method: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: tuple[int, ...] | None = None,
    main_seeds: tuple[int, ...] | None = None,
    sequences: tuple[str, ...] | None = None,
) -> Setup:
    """What all runs share.

    Learning rates come from the file `rates`, by default those of `methods/defaults.py` for the model's size.
    `by_method` wins over the file.
    """
    if "lr" in common:
        raise ConfigError("lr: every method has a rate of its own here; use --rates FILE or --for METHOD lr=RATE")
    model = str(common.get("model", "nano"))
    width = embedding_width(model)
    options = read_rates(rates) if rates else {name: options_for(name, width) for name in METHODS}
    if common.get("benchmark", "atlas") == "atlas":
        options.setdefault("gift", {}).setdefault("method.generator", "atlas")  # nothing to download
    for name, values in (by_method or {}).items():
        if name not in METHODS:
            raise ConfigError(f"for: {no_such('method', name, METHODS)}")
        options.setdefault(name, {}).update(values)
    return Setup(dict(common), options, width, seeds, main_seeds, sequences)


# -- what it will cost -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What plans will take. Times are estimated from runs in the same folder."""

    plans: tuple[tuple[str, int], ...]  # name and number of runs, shared ones counted in each
    runs: int
    finished: int
    steps: int  # of the runs that are left
    seconds: float | None  # of the runs that are left, one after the other
    at_once: int | None  # None: the cluster decides
    measured: int  # runs that the estimate comes from

    def lines(self) -> list[str]:
        lines = [f"{name}: {_runs(count)}" if count else f"{name}: needs no runs" for name, count in self.plans]
        shared = sum(count for _, count in self.plans) - self.runs
        lines.append(f"together: {_runs(self.runs)}" + (f" ({shared} shared between plans)" if shared else ""))
        left = self.runs - self.finished
        lines.append(f"finished already: {self.finished}; left: {_runs(left)}, {self.steps:,} steps")
        if not left:
            return lines
        if self.seconds is None:
            unknown = "time: not known before a run in this folder has learned a task; ask again then (--dry-run)"
            return [*lines, unknown]
        basis = f"from the speed of {_runs(self.measured)} in this folder"
        text = f"time (estimate, {basis}): {duration(self.seconds)} if one run comes after the other"
        if self.at_once and self.at_once > 1:
            text += f"; {duration(self.seconds / self.at_once)} with {self.at_once} at a time that do not slow down"
        return [*lines, text]


def cost_of(plans: Sequence[Plan], setup: Setup, out: Path, execution: Execution) -> Cost:
    """What is left to do for these plans, and how long it may take."""
    jobs = all_jobs(plans, setup)
    check(jobs)
    left = [job for job in jobs if not is_finished(out / "runs" / job.name)]
    steps = {job: steps_of(job) for job in left}
    seconds = _seconds_per_step(out / "runs")
    mean = sum(seconds.values()) / len(seconds) if seconds else None
    counts = tuple((plan.name, len(plan.jobs(setup))) for plan in plans)
    at_once = None
    if execution.engine == "local" and left:
        at_once = min(len(left), len(devices_for(left, execution)))
    # A method that has not run yet is taken to be as fast as the others are on average.
    total = sum(steps[job] * seconds.get(job.options["method"]["name"], mean) for job in left) if mean else None
    return Cost(
        counts, len(jobs), len(jobs) - len(left), sum(steps.values()), total, at_once, len(_measured(out / "runs"))
    )


def dry_run(plans: Sequence[Plan], setup: Setup, out: Path, execution: Execution) -> list[str]:
    """What running these plans would do, in words: its cost, the runs that are left, the data that are missing."""
    jobs = all_jobs(plans, setup)
    lines = cost_of(plans, setup, out, execution).lines()
    lines += [f"  {job.name}" for job in jobs if not is_finished(out / "runs" / job.name)]
    return lines + ([f"missing data: {problem}" for problem in missing_data(jobs)] or ["missing data: none"])


def missing_data(jobs: Sequence[Job]) -> list[str]:
    """Why tasks or reference images of these runs cannot be loaded, each once. No image is decoded."""
    alone, needing, found = dict[str, RunConfig](), None, dict[str, None]()
    for job in jobs:
        config = job.config(Path())
        for name in task_order(config):
            alone.setdefault(name, replace(config, sequence=name, limit_tasks=None))
        requests = build_method(config.method, config.protocol).image_requests()
        needing = needing or (config if any(request.name == "reference" for request in requests) else None)
    for config in alone.values():
        try:
            load_sequence(config, with_reference=False)
            if needing is not None:  # once is enough
                config, needing = replace(needing, sequence=config.sequence, limit_tasks=None), None
                load_sequence(config)
        except TassoError as error:
            found[str(error)] = None
    return list(found)


def steps_of(job: Job) -> int:
    """Optimiser steps of a run over all its tasks, from the benchmark's sizes."""
    config = with_benchmark_options(with_defaults(from_dict(job.options, job.name))[0])
    benchmark = BENCHMARKS[config.benchmark]
    of_task = {data_set.name: data_set for data_set in benchmark.data_sets}
    sizes = [
        of_task[name].train * classes // of_task[name].classes
        for name in order(benchmark.tasks, config.sequence, named=benchmark.sequences)
        for classes in step_sizes(config.split_classes or WHOLE, of_task[name].classes)
    ][: config.limit_tasks]
    return sum(config.steps or planned_steps(unwrap(config.step_rule), size, config.batch_size) for size in sizes)


def _measured(folder: Path) -> list[dict[str, Any]]:
    """Results in this folder with at least one learned task; unfinished runs count too."""
    found = []
    for file in sorted(folder.glob("*/results.json")):
        with contextlib.suppress(RunError):  # its own run will say what is wrong
            found.append(RunFolder(file.parent).read_results())
    return [results for results in found if results and results["per_task"]]


def _seconds_per_step(folder: Path) -> dict[str, float]:
    """By method, preparation and evaluation included."""
    seconds: dict[str, list[float]] = {}
    for results in _measured(folder):
        spent = sum(task.get(key, 0.0) for task in results["per_task"] for key in SECONDS)
        seconds.setdefault(results["method"], []).append(spent / sum(task["steps"] for task in results["per_task"]))
    return {method: sum(values) / len(values) for method, values in seconds.items()}


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


# -- running ------------------------------------------------------------------------------------------------------


def run_plans(plans: Sequence[Plan], setup: Setup, out: Path, execution: Execution) -> Summary:
    """Learn the runs that are left, into `out/runs`. A failed run leaves a gap in the report."""
    timed = [plan for plan in plans if plan.tag == TIMED]
    if execution.engine != "local" and timed:
        raise ConfigError("engine: runs whose time is measured (plan compute) must have a machine to themselves: local")
    jobs = all_jobs(plans, setup)
    check(jobs)
    folder = out / "runs"
    file = folder / RECORD
    try:
        before = read_record(file)
    except RunError:  # it is only a cache of what is counted below
        before = None
    # The record is of all plans: the verdict reads all runs that are there.
    record = make_record(setup, plans, before.arithmetic if before else {})
    write_record(record, file)
    summary = run_jobs(jobs, folder, execution)
    if not summary.stopped:
        counted = count_arithmetic(
            [job for plan in timed for job in plan.jobs(setup)], record.arithmetic, execution.device
        )
        write_record(replace(record, arithmetic=counted), file)
    return summary


def count_arithmetic(
    jobs: Sequence[Job], counted: Mapping[str, Arithmetic], device: str = "auto"
) -> dict[str, Arithmetic]:
    """TFLOP per step of these runs, by name; what is `counted` already is kept.

    Hours of training may lie behind: a model that does not fit beside others leaves a gap and a warning, no failure.
    """
    found = dict(counted)
    for job in jobs:
        if job.name in found:
            continue
        try:
            found[job.name] = _count(job, device)
        except (TassoError, RuntimeError) as error:  # torch reports too little memory as a RuntimeError
            log.warning("%s: the arithmetic of a step cannot be counted: %s", job.name, error)
    return found


def _count(job: Job, device: str) -> Arithmetic:
    from tasso.experiments.bench.step import count_work

    options: dict[str, Any] = {key: job.options[key] for key in RELEVANT if key in job.options}
    data_sets = BENCHMARKS[str(job.options.get("benchmark", "atlas"))].data_sets
    classes = round(sum(data_set.classes for data_set in data_sets) / len(data_sets))
    work = count_work({**options, "device": device}, classes)
    return Arithmetic(round(work.tflop, 6), classes)
