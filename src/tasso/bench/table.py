"""A bench's result for people."""

from __future__ import annotations

from typing import Any

NAMES = {
    "seconds_ms": "milliseconds a call (median)",
    "spread_ms": "slowest round less fastest (ms)",
    "images_per_second": "pictures a second",
    "tflop": "arithmetic of a step (TFLOP)",
    "tflops": "TFLOP/s",
    "matmul_tflops": "TFLOP/s of large products here",
    "share_of_matmul": "share of that",
    "peak_memory_gib": "peak memory (GiB)",
    "seconds_to_first_step": "seconds to the first step",
    "times_faster": "times faster than the plain recipe",
    "training_minutes": "minutes of training",
    "evaluation_minutes": "minutes of evaluation",
    "minutes": "minutes in all",
}


def show(result: dict[str, Any], indent: str = "") -> None:
    """Print one line a value, with what it was measured on."""
    for key, value in result.items():
        if isinstance(value, dict) and key in ("reference", "evaluation"):
            print(f"{indent}{key}:")
            show(value, indent + "  ")
        elif isinstance(value, dict):
            print(f"{indent}{key:<34} " + ", ".join(f"{k} {v}" for k, v in value.items() if v is not None))
        else:
            print(f"{indent}{NAMES.get(key, key.replace('_', ' ')):<34} {value}")
