"""The content of results.json: created, extended row by row, checked, formatted."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasso.config import RunConfig
from tasso.data import TaskSequence
from tasso.errors import AFRESH, RunError
from tasso.evaluation.accuracy import AccuracyRows
from tasso.evaluation.alignment import BINS, RANGE
from tasso.evaluation.metrics import metrics, step_accuracies
from tasso.methods import Method
from tasso.models.clip import Clip, ModelSpec
from tasso.training.conditions import conditions
from tasso.training.identity import portable

RESULTS_VERSION = 1


def new_results(
    config: RunConfig,
    method: Method,
    clip: Clip,
    sequence: TaskSequence,
    weights: str,
    left_out: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """A results.json without measurements.

    Args:
        sequence: what is learned from, without images that cannot be read.
        weights: checksum of the weights that the run starts with.
        left_out: keys of the images that cannot be read, by the name of their set.
    """
    tasks = sequence.tasks
    return {
        "version": RESULTS_VERSION,
        "finished": False,
        "wall_seconds": 0.0,
        "method": method.name,
        "label": config.label,
        "seed": config.seed,
        "model": str(ModelSpec(**portable(dataclasses.asdict(clip.spec)))),  # tables have no paths of this machine
        "benchmark": config.benchmark,
        "conditions": conditions(config),
        "split": config.evaluate_on,
        "sequence": config.sequence,
        "protocol": config.protocol,
        "tasks": sequence.names,
        "mtil": {"zero_shot": [], "matrix": [], "metrics": None},
        "mcil": {"zero_shot": [], "matrix": [], "metrics": None},
        **({"seen": _seen(sequence)} if config.scores_seen else {}),
        "alignment": {"bins": BINS, "range": list(RANGE), "zero_shot": None, "last": None},
        "per_task": [],
        "classes": {task.name: len(task.class_names) for task in tasks},
        "class_names": {task.name: list(task.class_names) for task in tasks},
        "templates": {task.name: list(task.templates) for task in tasks if task.templates},
        "data": sequence.contents(),
        "stamps": sequence.stamps(),
        "left_out": {name: list(keys) for name, keys in left_out.items()},
        "weights": weights,
        "parameters": clip.count_parameters(),
    }


def _seen(sequence: TaskSequence) -> dict[str, Any]:
    """The setting of the classes learned so far, without measurements.

    `images`: how many are evaluated per task, the weights of the accuracy after a step. `zero_shot_steps`: that
    accuracy of the pretrained model.
    """
    images = [len(task.evaluated) for task in sequence.tasks]
    return {"zero_shot": [], "matrix": [], "metrics": None, "images": images, "zero_shot_steps": []}


def add_zero_shot(results: dict[str, Any], rows: AccuracyRows) -> None:
    """Add the row of the pretrained model; its seen classes are scored for every number of learned tasks."""
    for setting, row in rows.settings().items():
        results[setting]["zero_shot"] = row
    if rows.seen:
        results["seen"]["zero_shot_steps"] = step_accuracies(rows.seen[1:], results["seen"]["images"])
    results["alignment"]["zero_shot"] = rows.alignment


def add_row(results: dict[str, Any], rows: AccuracyRows, metadata: dict[str, Any]) -> None:
    """Add the row after a task and the metadata of its training. The last row completes the metrics."""
    for setting, row in rows.settings().items():
        part = results[setting]
        part["matrix"].append(row)
        if len(part["matrix"]) == len(results["tasks"]):
            part["metrics"] = metrics(part["zero_shot"], part["matrix"], part.get("images"))
            results["finished"] = True
    if results["finished"]:
        results["alignment"]["last"] = rows.alignment
    results["per_task"].append(metadata)


def unknown_rows(results: Mapping[str, Any]) -> AccuracyRows:
    """The row after a task when nothing is measured."""
    unknown: list[float | None] = [None for _ in results["tasks"]]
    return AccuracyRows(unknown, unknown, [unknown] if "seen" in results else None)


def earlier_row(results: Mapping[str, Any], index: int, tasks: Sequence[str]) -> tuple[AccuracyRows, dict[str, Any]]:
    """The row after a task of the extended run whose checkpoint was removed, and the metadata of its training.

    MTIL scores a task against its own classes, so earlier accuracies still hold; those of new tasks are unknown. In
    MCIL the classes of the new tasks are candidates too, so all accuracies are unknown. Among the classes learned so
    far are none of the new tasks, so if these were scored, they hold.
    """
    extended = results["extends"]

    def row_of(setting: str) -> list[float | None]:
        known = dict(zip(extended["tasks"], extended[setting]["matrix"][index], strict=True))
        return [known.get(name) for name in tasks]

    rows = replace(unknown_rows(results), mtil=row_of("mtil"))
    if "seen" in results and "seen" in extended:
        rows = replace(rows, seen=[row_of("seen")])
    return rows, dict(extended["per_task"][index])


def check_results(document: Any, file: Path) -> dict[str, Any]:
    """The results, or a RunError that names the key that is missing or malformed.

    Checks what it takes to see how far a run got; `check_complete` checks the rest.
    """
    if not isinstance(document, dict):
        raise RunError(f"{file}: not the results of a run; {AFRESH}")
    _require(document, ("version", "finished", "tasks", "per_task", "mtil", "mcil"), file)
    if document["version"] != RESULTS_VERSION:
        raise RunError(f"{file}: version {document['version']}; this tasso reads version {RESULTS_VERSION}")
    rows, names = document["per_task"], document.get("class_names", {})
    well_formed = {
        "finished": isinstance(document["finished"], bool),
        "tasks": isinstance(document["tasks"], list) and all(isinstance(name, str) for name in document["tasks"]),
        "per_task": isinstance(rows, list) and all(isinstance(row, dict) for row in rows),
        "class_names": isinstance(names, dict) and all(isinstance(value, list) for value in names.values()),
    }
    for setting in ("mtil", "mcil", *(["seen"] if "seen" in document else [])):
        part = document[setting]
        lists = isinstance(part, dict) and all(isinstance(part.get(key), list) for key in ("zero_shot", "matrix"))
        well_formed[setting] = lists and all(isinstance(row, list) for row in part["matrix"])
    _require_well_formed(well_formed, file)
    return document


def check_complete(results: Mapping[str, Any], file: Path) -> None:
    """Raise a RunError unless the results have all that it takes to resume or to use the run."""
    _require(results, ("method", "label", "model", "alignment", "class_names", "templates", "data", "weights"), file)
    data = results["data"]
    well_formed = {
        "alignment": isinstance(results["alignment"], dict),
        "templates": isinstance(results["templates"], dict),
        "data": isinstance(data, dict) and isinstance(data.get("tasks"), dict),
    }
    _require_well_formed(well_formed, file)


def _require(results: Mapping[str, Any], keys: Sequence[str], file: Path) -> None:
    if missing := [key for key in keys if key not in results]:
        raise RunError(f"{file}: not the results of a run of this version: {missing[0]!r} is missing; {AFRESH}")


def _require_well_formed(well_formed: Mapping[str, bool], file: Path) -> None:
    if malformed := [key for key, fits in well_formed.items() if not fits]:
        raise RunError(f"{file}: {malformed[0]} is malformed; {AFRESH}")


def to_json(document: Mapping[str, Any]) -> str:
    """Indented JSON with lists of numbers on one line: a histogram would take hundreds of lines."""
    # Strings are safe: in JSON they contain no line breaks.
    number = r"(?:null|[-+.\deE]+)"
    lists = re.compile(rf"\[\n\s+{number}(?:,\n\s+{number})*\n\s*\]")
    text = json.dumps(document, indent=1)
    return lists.sub(lambda found: "[" + ", ".join(found[0][1:-1].replace(",", " ").split()) + "]", text)
