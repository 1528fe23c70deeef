"""Runs on a Ray cluster, or on one that Ray starts on this machine. All nodes see the run folders."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tasso.errors import ConfigError, install
from tasso.experiments.sweep.work import Outcome, Work, perform

log = logging.getLogger("tasso")

RETRIES = 2  # of a run whose worker dies; it is resumed
POLL_SECONDS = 0.5
BUSY_SECONDS = 120.0  # how long a run waits for a locked folder, e.g. of a worker whose sweep was killed
CONNECT_SECONDS = 10.0
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
    due = deque((0.0, work) for work in works)
    busy_since: dict[str, float] = {}
    pending: dict[Any, Work] = {}
    try:
        while (due or pending) and not stop.is_set():
            while due and due[0][0] <= time.monotonic():
                work = due.popleft()[1]
                pending[remote.options(name=work.name).remote(work)] = work
            if not pending:
                stop.wait(POLL_SECONDS)
                continue
            ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
            for reference in ready:
                work, now = pending.pop(reference), time.monotonic()
                outcome = _outcome(ray, reference, work)
                if outcome.status == "stopped" and not stop.is_set():  # its worker or machine was asked to end
                    log.warning("%s: its worker was asked to stop; it goes on from its saved state", work.name)
                    due.appendleft((now, work))
                elif outcome.status == "busy" and now - busy_since.setdefault(work.name, now) < BUSY_SECONDS:
                    due.append((now + 10 * POLL_SECONDS, work))
                else:
                    report(outcome)
    finally:
        for reference in pending:  # to a run this is like Ctrl-C: it saves its state
            ray.cancel(reference)
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=STOP_SECONDS)
    for reference, work in pending.items():
        report(_outcome(ray, reference, work))
    for _, work in due:
        report(Outcome(work.name, "stopped"))


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
        _check_address(os.environ.get("RAY_ADDRESS", ""))
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING, configure_logging=False)
        except (SystemExit, OSError, RuntimeError, ValueError) as error:  # it exits where there is no cluster
            raise ConfigError(f"engine: ray: cannot connect to a cluster{_named()}: {error}") from None
    return ray


def _check_address(address: str) -> None:
    """An error where nobody listens: Ray would try for two minutes."""
    if not (place := re.fullmatch(r"(?:ray://)?\[?([^/\s]+?)\]?:(\d+)", address)):
        return
    try:
        socket.create_connection((place[1], int(place[2])), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"engine: ray: nothing answers{_named()}: {error}") from None


def _named() -> str:
    address = os.environ.get("RAY_ADDRESS")
    return f" at {address} (RAY_ADDRESS)" if address else ""


def _outcome(ray: Any, reference: Any, work: Work) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference, timeout=0)
        return outcome
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        return Outcome(work.name, "stopped")
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome(work.name, "failed", f"Ray: {lines[0]}")
