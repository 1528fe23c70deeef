"""The content of results.json, filled row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasso.config import RunConfig
from tasso.data import TaskSequence
from tasso.evaluation.accuracy import Rows
from tasso.evaluation.alignment import BINS, RANGE
from tasso.evaluation.metrics import metrics
from tasso.methods import Method
from tasso.models.clip import Clip
from tasso.training.run_folder import RESULTS_VERSION


def new_results(config: RunConfig, method: Method, clip: Clip, sequence: TaskSequence) -> dict[str, Any]:
    """A results.json in which nothing has been measured yet."""
    tasks = sequence.tasks
    return {
        "version": RESULTS_VERSION,
        "finished": False,
        "method": method.name,
        "label": config.label,
        "seed": config.seed,
        "model": str(clip.spec),
        "benchmark": config.benchmark,
        "sequence": config.sequence,
        "protocol": config.protocol,
        "tasks": sequence.names,
        "mtil": {"zero_shot": [], "matrix": [], "metrics": None},
        "mcil": {"zero_shot": [], "matrix": [], "metrics": None},
        "alignment": {"bins": BINS, "range": list(RANGE), "zero_shot": None, "last": None},
        "per_task": [],
        "classes": {task.name: len(task.class_names) for task in tasks},
        "class_names": {task.name: list(task.class_names) for task in tasks},
        "templates": {task.name: list(task.templates) for task in tasks if task.templates},
        "data": sequence.contents(),
        "parameters": clip.count_parameters(),
    }


def add_zero_shot(results: dict[str, Any], rows: Rows) -> None:
    """The row before all tasks."""
    for setting, row in rows.settings().items():
        results[setting]["zero_shot"] = row
    results["alignment"]["zero_shot"] = rows.alignment


def add_row(results: dict[str, Any], rows: Rows, metadata: dict[str, Any]) -> None:
    """The row after a task, with what was measured while it was learned. The last one completes the metrics."""
    for setting, row in rows.settings().items():
        part = results[setting]
        part["matrix"].append(row)
        if len(part["matrix"]) == len(results["tasks"]):
            part["metrics"] = metrics(part["zero_shot"], part["matrix"])
            results["finished"] = True
    if results["finished"]:
        results["alignment"]["last"] = rows.alignment
    results["per_task"].append(metadata)


def earlier_row(results: Mapping[str, Any], index: int, tasks: Sequence[str]) -> tuple[Rows, dict[str, Any]]:
    """A row of the run that this one extends, where its model is gone, and what was measured then.

    MTIL scores a task against its own classes, so what was measured still holds; nothing is known of the new tasks. In
    MCIL the classes of the new tasks are among the candidates now, so nothing is known at all.
    """
    before = results["extends"]
    known = dict(zip(before["tasks"], before["mtil"]["matrix"][index], strict=True))
    rows = Rows([known.get(name) for name in tasks], [None for _ in tasks])
    return rows, dict(before["per_task"][index])
