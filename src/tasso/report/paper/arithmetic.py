"""How much arithmetic a training step of the timed runs is. Counted once and kept beside the runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasso.data.catalogue import BENCHMARKS
from tasso.errors import TassoError
from tasso.experiments.sweep.jobs import Job
from tasso.files import parse_json, write_text
from tasso.report.reader import Reader, ReportError

log = logging.getLogger("tasso")

FILE = "compute.json"
# What the arithmetic of a step follows from.
RELEVANT = ("model", "method", "protocol", "batch_size", "reference_batch_size", "accumulate", "precision")
STEPS = 1000  # any number above two: the schedule changes no multiplication


@dataclass(frozen=True)
class Arithmetic:
    """10¹² multiplications and additions of one step on a task with so many classes."""

    tflop: float
    classes: int


def count_arithmetic(jobs: Sequence[Job], folder: Path, device: str = "auto") -> None:
    """Count what is not counted yet and write it to `compute.json` in the folder of the runs.

    Hours of training may lie behind: a model that does not fit beside others leaves a gap and a warning, no failure.
    """
    known = read_arithmetic(folder)
    for job in jobs:
        if job.name in known:
            continue
        try:
            known[job.name] = _count(job, device)
        except (TassoError, RuntimeError) as error:  # torch tells of too little memory by a RuntimeError
            log.warning("%s: the arithmetic of a step cannot be counted: %s", job.name, error)
            continue
        found = {name: {"tflop": one.tflop, "classes": one.classes} for name, one in sorted(known.items())}
        write_text(folder / FILE, json.dumps(found, indent=1) + "\n")


def _count(job: Job, device: str) -> Arithmetic:
    from tasso.experiments.bench.step import count_tflop

    options: dict[str, Any] = {key: job.options[key] for key in RELEVANT if key in job.options}
    data_sets = BENCHMARKS[str(job.options.get("benchmark", "atlas"))].data_sets
    classes = round(sum(data_set.classes for data_set in data_sets) / len(data_sets))
    tflop = count_tflop({**options, "device": device, "steps": STEPS}, classes)
    return Arithmetic(round(tflop, 6), classes)


def read_arithmetic(folder: Path) -> dict[str, Arithmetic]:
    """What has been counted, by the name of the run."""
    file = folder / FILE
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ReportError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ReportError(f"{file}: expected a JSON object")
    reader = Reader(file, content)
    parts = {name: reader.inner(name, value) for name, value in content.items()}
    return {name: Arithmetic(part.number("tflop"), part.integer("classes")) for name, part in parts.items()}
