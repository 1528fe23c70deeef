"""Metrics of a run, computed from its accuracy matrix.

`matrix[i][k]` is the accuracy on task k after learning task i, `zero_shot[k]` that of the pretrained model, both in
sequence order and in percent.

Accuracies that were not measured (`--evaluate-every`, removed models of a run that was extended) are None. A metric
that needs one of them is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasso.errors import DataError
from tasso.files import RESULTS, no_run, parse_json, read_text

LARGEST = 1e300  # JSON integers may exceed the range of floats

Matrix = Sequence[Sequence[float]]


def accuracy(matrix: Matrix) -> float:
    """Mean accuracy over all tasks after the last one."""
    return _mean(matrix[-1])


def forgetting(matrix: Matrix) -> float:
    """Accuracy right after learning a task minus its worst later accuracy; mean over all tasks but the last.

    Negative if tasks only got better.
    """
    tasks = len(matrix)
    return _mean([matrix[k][k] - min(matrix[i][k] for i in range(k + 1, tasks)) for k in range(tasks - 1)])


def zero_shot_degradation(zero_shot: Sequence[float], matrix: Matrix) -> float:
    """Pretrained accuracy on a task minus its worst one before it is learned; mean over all tasks but the first."""
    return _mean([zero_shot[k] - min(matrix[i][k] for i in range(k)) for k in range(1, len(matrix))])


def transfer(matrix: Matrix) -> float:
    """ZSCL's transfer: mean accuracy on a task before it is learned, averaged over all tasks but the first."""
    return _mean([_mean([matrix[i][k] for i in range(k)]) for k in range(1, len(matrix))])


def average(matrix: Matrix) -> float:
    """ZSCL's average: mean of the whole matrix."""
    return _mean([_mean(row) for row in matrix])


def last(matrix: Matrix) -> float:
    """ZSCL's last: the same as accuracy."""
    return accuracy(matrix)


def seen_average(matrix: Matrix) -> float:
    """CoLeCLIP's seen average: mean accuracy on a task once it is learned, averaged over all tasks."""
    return _mean([_mean([row[k] for row in matrix[k:]]) for k in range(len(matrix))])


def step_accuracies(matrix: Sequence[Sequence[float | None]], images: Sequence[int]) -> list[float | None]:
    """Class-incremental accuracy after each step: over all images of the classes learned so far.

    Args:
        matrix: scored against the classes learned so far.
        images: how many of each task are evaluated.
    """
    found: list[float | None] = []
    for step, row in enumerate(matrix, 1):
        known = [value for value in row[:step] if value is not None]
        right = sum(value * count for value, count in zip(known, images, strict=False))
        found.append(right / sum(images[:step]) if len(known) == step else None)
    return found


def incremental(steps: Sequence[float | None]) -> dict[str, float | None]:
    """Average incremental accuracy (mean over all steps) and last accuracy of class-incremental learning."""
    known = [value for value in steps if value is not None]
    return {
        "incremental_average": _mean(known) if len(known) == len(steps) else None,
        "incremental_last": steps[-1],
    }


def metrics(
    zero_shot: Sequence[float], matrix: Sequence[Sequence[float | None]], images: Sequence[int] | None = None
) -> dict[str, float | None]:
    """All metrics by name. Those that need several tasks are None for a single one.

    Args:
        images: how many of each task are evaluated, for a matrix scored against the classes learned so far; None for
            others, which have no class-incremental metrics.
    """
    tasks = len(matrix)
    # `min` would skip a NaN, so every metric is None if any accuracy it needs is unknown.
    filled = [[math.nan if value is None else value for value in row] for row in matrix]
    before = [filled[i][k] for k in range(tasks) for i in range(k)]
    after = [filled[i][k] for k in range(tasks) for i in range(k, tasks)]
    several = tasks > 1
    found = {
        "accuracy": _if_known(filled[-1], lambda: accuracy(filled)),
        "forgetting": _if_known(after, lambda: forgetting(filled)) if several else None,
        "zero_shot_degradation": _if_known(before, lambda: zero_shot_degradation(zero_shot, filled))
        if several
        else None,
        "transfer": _if_known(before, lambda: transfer(filled)) if several else None,
        "average": _if_known([value for row in filled for value in row], lambda: average(filled)),
        "last": _if_known(filled[-1], lambda: last(filled)),
    }
    if images is None:
        return found
    found["seen_average"] = _if_known(after, lambda: seen_average(filled))
    return {**found, **incremental(step_accuracies(matrix, images))}


def _if_known(needed: Sequence[float], compute: Callable[[], float]) -> float | None:
    """The metric, or None if one of the accuracies it needs is NaN."""
    return None if any(math.isnan(value) for value in needed) else compute()


def metrics_of_file(path: Path) -> dict[str, Any]:
    """Metrics of a results.json (all its settings), a run folder, or a file {"zero_shot": […], "matrix": [[…], …]}."""
    if path.is_dir() or not (path.exists() or path.suffix):
        if not (path / RESULTS).exists():
            raise DataError(no_run(path))
        path = path / RESULTS
    try:
        document = parse_json(read_text(path))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file; give a run's folder, or a JSON file with its results") from None
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise DataError(f"{path}: expected an object with 'zero_shot' and 'matrix'")
    if "matrix" in document:
        return dict(_checked(document, str(path)))
    settings = [setting for setting in ("mtil", "mcil", "seen") if setting in document]
    if not settings:
        raise DataError(f"{path}: has neither 'matrix' nor 'mtil' and 'mcil'")
    return {setting: _checked(document[setting], f"{path}: {setting}") for setting in settings}


def _checked(part: Any, where: str) -> dict[str, float | None]:
    """Metrics of one setting, after checking that it is a matrix of numbers."""
    if not isinstance(part, dict):
        raise DataError(f"{where}: expected an object with 'zero_shot' and 'matrix'")
    zero_shot, matrix = part.get("zero_shot"), part.get("matrix")
    if not _numbers(zero_shot):
        raise DataError(f"{where}: zero_shot must be a list of numbers")
    if zero_shot and matrix == []:
        raise DataError(f"{where}: no task has been learned yet; the command of a run that stopped resumes it")
    if not isinstance(matrix, list) or not matrix:
        raise DataError(f"{where}: matrix must be a list of rows")
    assert isinstance(zero_shot, list)
    if len(matrix) != len(zero_shot):
        raise DataError(
            f"{where}: matrix has {len(matrix)} rows, zero_shot has {len(zero_shot)} tasks; metrics need all"
        )
    for number, row in enumerate(matrix):
        if not isinstance(row, list) or len(row) != len(zero_shot) or not _numbers([v for v in row if v is not None]):
            raise DataError(f"{where}: matrix[{number}] must be {len(zero_shot)} numbers")
    images = part.get("images")
    if images is not None and (not _numbers(images) or len(images) != len(matrix) or sum(images[:1]) <= 0):
        raise DataError(f"{where}: images must be {len(matrix)} positive numbers")
    return metrics(zero_shot, matrix, images)


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= LARGEST for v in values
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
