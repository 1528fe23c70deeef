"""Timing of calls, matmul rate, peak memory, and a description of the machine."""

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

ROUND_SECONDS = 0.6


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median over rounds, and the slowest round minus the fastest."""

    seconds: float
    spread: float

    def to_dict(self) -> dict[str, float]:
        """For JSON, in milliseconds."""
        return {f"{key}_ms": round(1e3 * value, 4) for key, value in asdict(self).items()}


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all work."""
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
    """Time a call, in rounds of several calls, after a warm-up. The device is synchronised per round, not per call.

    Args:
        warm_up: untimed calls; None: up to 6.
        rounds: number of rounds; the median counts.
        calls: calls per round; None: as many as take `ROUND_SECONDS`, so that other load on the machine averages out.
    """
    for _ in range(min(6, calls or 6) if warm_up is None else warm_up):
        call()

    def one_round(count: int) -> float:
        synchronise(device)
        started = time.perf_counter()
        for _ in range(count):
            call()
        synchronise(device)
        return (time.perf_counter() - started) / count

    if calls is None:
        calls = max(3, math.ceil(ROUND_SECONDS / one_round(3)))
    times = [one_round(calls) for _ in range(rounds)]
    return Timing(median(times), max(times) - min(times))


def matmul_rate(device: torch.device, precision: torch.dtype) -> float:
    """TFLOP/s that the machine reaches on large square matrix products."""
    size = 8192 if device.type == "cuda" else 1024
    x = torch.randn(size, size, device=device).to(precision)
    timing = time_calls(lambda: x @ x, device, warm_up=3, rounds=5, calls=10 if device.type == "cuda" else 2)
    return 2 * size**3 / timing.seconds / 1e12


def reset_peak_memory(device: torch.device) -> None:
    """Free what is left of an earlier measurement, and reset the peak memory counter of a GPU."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Device, threads and versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "cuda": device.type == "cuda", "threads": torch.get_num_threads(), "versions": versions()}
