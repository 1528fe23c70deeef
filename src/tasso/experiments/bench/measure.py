"""Clocks, counters and the facts of the machine."""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from tasso.training.run_folder import versions

# Sized for two CPU cores and a minute: options of a run, and how often each thing is done.
QUICK: dict[str, Any] = {"model": "nano", "batch_size": 8, "reference_batch_size": 16, "eval_batch_size": 64}
QUICK_HOW: dict[str, dict[str, int]] = {
    "step": {"rounds": 3, "calls": 2},
    "eval": {"images": 128},
    "images": {"rounds": 2, "calls": 2, "images": 192, "batches": 2},
    "run": {"rounds": 3, "calls": 2, "images": 128},
}
ROUND_SECONDS = 0.6


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the median of several rounds, and how far the rounds are apart."""

    seconds: float
    spread: float

    @property
    def milliseconds(self) -> float:
        """Of the median round."""
        return 1e3 * self.seconds


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_calls(
    call: Callable[[], Any],
    device: torch.device,
    *,
    warm_up: int | None = None,
    rounds: int = 5,
    calls: int | None = None,
) -> Timing:
    """Time a call in rounds of several, after a warm-up. Waiting for the device is part of a round, not of a call.

    Args:
        calls: so many a round; None: as many as take `ROUND_SECONDS`, so that short calls are not at the mercy of
            whatever else the machine does at that moment.
    """
    for _ in range(min(6, calls or 6) if warm_up is None else warm_up):
        call()

    def once(number: int) -> float:
        synchronise(device)
        started = time.perf_counter()
        for _ in range(number):
            call()
        synchronise(device)
        return (time.perf_counter() - started) / number

    if calls is None:
        calls = max(3, math.ceil(ROUND_SECONDS / once(3)))
    times = [once(calls) for _ in range(rounds)]
    return Timing(median(times), max(times) - min(times))


def matmul_rate(device: torch.device, precision: torch.dtype) -> float:
    """What the machine reaches on large square products, in TFLOP/s: the yardstick for everything else."""
    size = 8192 if device.type == "cuda" else 1024
    x = torch.randn(size, size, device=device).to(precision)
    timing = time_calls(lambda: x @ x, device, warm_up=3, rounds=5, calls=10 if device.type == "cuda" else 2)
    return 2 * size**3 / timing.seconds / 1e12


def reset_peak_memory(device: torch.device) -> None:
    """Start counting anew, where the device counts."""
    if device.type == "cuda":
        gc.collect()  # an earlier learner that waits to be collected would be counted in
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "cuda": device.type == "cuda", "threads": torch.get_num_threads(), "versions": versions()}


def plain(timing: Timing) -> dict[str, float]:
    """A timing for JSON, in milliseconds."""
    return {f"{key}_ms": round(1e3 * value, 4) for key, value in asdict(timing).items()}
