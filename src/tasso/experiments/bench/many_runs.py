"""Training steps that several runs on one device make together, as in a sweep."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from tasso.errors import ConfigError, RunError
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.step import begin_second_task, describe_step
from tasso.experiments.bench.timing import synchronise
from tasso.experiments.sweep.devices import cores_for_each
from tasso.experiments.sweep.local import Child, bound_to_parent
from tasso.experiments.sweep.mps import mps
from tasso.training.engine import Training, choose_device, peak_memory_gib

log = logging.getLogger("tasso")

JOBS = {"cuda": (1, 8, 16), "cpu": (1, 2)}
STEPS = {"cuda": 10, "cpu": 1}  # between two waits for the device, which a run could be many steps ahead of


def bench_sweep(
    options: Mapping[str, Any], *, classes: int = 100, jobs: Sequence[int] | None = None, seconds: float = 8.0
) -> dict[str, Any]:
    """Count the steps that several runs make together, each in a process, with MPS and threads as in a sweep.

    All processes are there from the start; for smaller numbers of runs some wait.

    Args:
        options: options of each run, as in `bench_step`.
        jobs: numbers of runs at once; one alone is always measured.
        seconds: how long the steps of each number of runs are counted.
    """
    device = choose_device(options.get("device", "auto"))
    numbers = sorted({1, *(jobs or JOBS[device.type])})
    if numbers[0] < 1:
        raise ConfigError(f"jobs: must be at least 1, not {numbers[0]}")
    cores = cores_for_each(numbers[-1])
    arguments = ({"workers": cores, **options, "device": str(device)}, classes, cores)
    runs: list[Child] = []
    rates: dict[int, float] = {}
    with mps([str(device)] * numbers[-1]) as has_mps:
        try:
            runs.append(Child(step_when_asked, *arguments))
            description = _received(runs[0])  # the others find what it has compiled; what cannot work fails only once
            for _ in range(1, numbers[-1]):
                runs.append(Child(step_when_asked, *arguments))
            for run in runs[1:]:
                _received(run)
            for number in numbers:
                for run in runs[:number]:
                    with contextlib.suppress(OSError):  # it died, which `_received` says
                        run.connection.send(seconds)
                rates[number] = sum(_received(run) for run in runs[:number])
                log.info("%d at once: %.1f steps per second", number, rates[number])
        finally:
            for run in runs:
                run.process.terminate()
            for run in runs:
                run.end()
    rows = compared(rates)
    best = max(row["times_one_alone"] for row in rows)
    result = {"what": "sweep", **description, "mps": has_mps, "counted_seconds": seconds}
    return {**result, "rows": rows, "times_one_alone": best}


def compared(rates: Mapping[int, float]) -> list[dict[str, float]]:
    """Rows of the table, from steps per second by number of runs."""
    return [
        {"runs": number, "steps_per_second": round(rate, 2), "times_one_alone": round(rate / rates[1], 3)}
        for number, rate in rates.items()
    ]


def _received(run: Child) -> Any:
    answer = run.receive()
    if isinstance(answer, Exception):
        raise answer
    if answer is None:
        raise RunError(f"sweep: the process of one of the runs {run.end()}")
    return answer


# -- in the child process ----------------------------------------------------------------------------------------


def step_when_asked(connection: Connection, options: Mapping[str, Any], classes: int, threads: int) -> None:
    """Send a description after the first steps, then steps per second whenever a number of seconds comes.

    From then on it steps all the time, so that runs which count a little longer do not have the device for themselves.
    """
    with bound_to_parent():
        try:
            if "OMP_NUM_THREADS" not in os.environ:
                torch.set_num_threads(threads)
            learner = random_learner(options, classes=classes)
            training = begin_second_task(learner)
            make_steps(training)
            captured = training.captured is not None
            connection.send({
                **describe_step(learner, classes), "cuda_graphs": captured, **peak_memory_gib(learner.device)
            })  # fmt: skip
            while True:
                connection.send(steps_per_second(training, connection.recv()))
                while not connection.poll():
                    make_steps(training)
        except Exception as error:
            error.add_note(traceback.format_exc())
            connection.send(error)


def steps_per_second(training: Training, seconds: float) -> float:
    started, first = time.perf_counter(), training.step
    while (elapsed := time.perf_counter() - started) < seconds:
        make_steps(training)
    return (training.step - first) / elapsed


def make_steps(training: Training) -> None:
    device = training.clip.device
    for _ in range(STEPS[device.type]):
        training.advance()
    synchronise(device)
