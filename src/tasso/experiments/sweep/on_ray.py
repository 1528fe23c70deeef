"""Runs on a Ray cluster, or on one that Ray starts on this machine. All nodes see the run folders."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tasso.errors import ConfigError, install
from tasso.experiments.sweep.work import Outcome, Work, perform

log = logging.getLogger("tasso")

RETRIES = 2  # of a run whose worker dies; it is resumed
POLL_SECONDS = 0.5
STOP_SECONDS = 120.0  # for a step to end and a state to be saved


def run_on_ray(
    works: Sequence[Work], at_once: int, stop: threading.Event, report: Callable[[Outcome], None], device: str
) -> None:
    """Run works as Ray tasks; each takes a core and, if the cluster has GPUs, a part of one.

    Ray restarts runs whose worker or node dies on another one. It starts a new process for each run on a GPU.

    Args:
        at_once: runs that share a GPU.
        device: `cpu`: no GPU is used.
    """
    ray = connected()
    gpu = device != "cpu" and ray.cluster_resources().get("GPU", 0)
    remote = ray.remote(num_cpus=1, num_gpus=1 / at_once if gpu else 0, max_retries=RETRIES)(perform)
    pending = {remote.options(name=work.name).remote(work): work for work in works}
    try:
        while pending and not stop.is_set():
            ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
            for reference in ready:
                report(_outcome(ray, reference, pending.pop(reference)))
    finally:
        for reference in pending:  # to a run this is like Ctrl-C: it saves its state
            ray.cancel(reference)
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=STOP_SECONDS)
    for reference, work in pending.items():
        report(_outcome(ray, reference, work))


def connected() -> Any:
    """Ray, connected to the cluster that RAY_ADDRESS names or that runs here, or else to a new one on this machine."""
    # No usage statistics, unless the user asks for them.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # asking for no GPU does not hide them
    try:
        import ray
    except ImportError:
        raise ConfigError(f"engine: ray is not installed: {install('ray')}") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.WARNING, configure_logging=False)
    return ray


def _outcome(ray: Any, reference: Any, work: Work) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference, timeout=0)
        return outcome
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        return Outcome(work.name, "stopped")
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome(work.name, "failed", f"Ray: {lines[0]}")
