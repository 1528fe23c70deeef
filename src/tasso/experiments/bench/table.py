"""A bench's result as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NAMES = {
    "seconds_ms": "milliseconds per call (median)",
    "spread_ms": "slowest minus fastest round (ms)",
    "images_per_second": "images per second",
    "features": "features of an image",
    "state_mib": "the head's state (MiB)",
    "fit_seconds": "seconds to fit the head",
    "operations": "operations per step, not compiled",
    "tflop": "arithmetic per step (TFLOP)",
    "tflops": "TFLOP/s",
    "matmul_tflops": "TFLOP/s of large matrix products",
    "share_of_matmul": "share of that rate",
    "peak_memory_gib": "peak memory (GiB)",
    "process_peak_memory_gib": "peak memory of the process (GiB)",
    "seconds_to_first_step": "seconds to the first step",
    "times_faster": "times faster than the plain recipe",
    "times_faster_than_eager": "times faster than eager",
    "times_one_alone": "times the steps of one, at best",
    "mps": "CUDA's MPS",
    "photographs_against_threads": "times faster than in threads",
    "icons_against_threads": "the same, images of 64 × 64",
    "packing_images_per_second": "images packed per second",
    "exact_images_per_second": "images per second, decoded",
    "packed_images_per_second": "images per second, from packs",
    "packed_against_exact": "times faster from packs",
    "share_of_device_rate": "steps from packs, share of the rate",
    "training_minutes": "minutes of training",
    "evaluation_minutes": "minutes of evaluation",
    "minutes": "minutes in all",
}

PARTS = ("reference", "eager", "evaluation", "step_on_device", "step_from_packs")  # nested results


def show(result: dict[str, Any], indent: str = "") -> None:
    """Print one line per value."""
    for key, value in result.items():
        if isinstance(value, dict) and key in PARTS:
            print(f"{indent}{key.replace('_', ' ')}:")
            show(value, indent + "  ")
        elif key == "rows":
            print(*_lines(value), sep="\n")
        elif isinstance(value, dict):
            print(f"{indent}{key:<34} " + ", ".join(f"{k} {v}" for k, v in value.items() if v is not None))
        else:
            print(f"{indent}{NAMES.get(key, key.replace('_', ' ')):<34} {value}")


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table of rows that may lack some of the columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([str(row.get(key, "")) for key in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    return ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)
