"""Read run folders into the table of results. Every complaint about a results.json names the file and the key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tasso.files import parse_json
from tasso.report.frame import COLUMNS, COSTS, DISTANCES, METRICS, SETTINGS, typed
from tasso.report.reader import Reader, ReportError, is_number, kind, whole
from tasso.report.study import STUDY_ENDINGS, read_study

RESULTS_NAME = "results.json"
CONFIG_NAME = "config.yaml"
RESULTS_VERSION = 1
_QUANTILES = 5  # minimum, quartiles and median, maximum


def read_runs(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> pd.DataFrame:
    """Read every run under `paths`: run folders, folders that hold run folders at any depth, or files of studies."""
    if isinstance(paths, str | PathLike):
        paths = [paths]
    frames: dict[Path, pd.DataFrame] = {}  # by resolved path, so that a run named twice is counted once
    for path in map(Path, paths):
        if path.name.endswith(STUDY_ENDINGS) and path.is_file():
            frames.setdefault(path.resolve(), read_study(path))
            continue
        for folder in _run_folders(path):
            if folder.resolve() not in frames:
                frames[folder.resolve()] = read_run(folder)
    return told_apart(pd.concat(frames.values(), ignore_index=True))


def told_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the number of tasks to the names of orders that share a name but not their tasks, as of a run and its
    extension: else tables would show rows that cannot be told apart."""
    keys = ["benchmark", "model", "sequence"]
    orders = frame[[*keys, "order"]].drop_duplicates()
    renamed: dict[tuple[Any, ...], str] = {}
    for key, several in orders.groupby(keys)["order"]:
        if len(several) > 1 and key[-1]:
            sizes = [len(tasks) for tasks in several]
            for tasks in several:
                which = f"{len(tasks)} tasks" if sizes.count(len(tasks)) == 1 else ", ".join(tasks)
                renamed[*key, tasks] = f"{key[-1]}: {which}"
    if not renamed:
        return frame
    names = [renamed.get(key, key[2]) for key in zip(*(frame[name] for name in (*keys, "order")), strict=True)]
    return frame.assign(sequence=pd.Series(names, index=frame.index, dtype=object))


def read_run(folder: str | PathLike[str]) -> pd.DataFrame:
    """Read one run folder."""
    folder = Path(folder)
    file = folder / RESULTS_NAME
    if not file.is_file():
        raise ReportError(f"{file}: not found; a run folder needs it (has the run written any result yet?)")
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReportError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ReportError(f"{file}: expected a JSON object, found {kind(content)}")
    return _parse(Reader(file, content), folder)


def _run_folders(path: Path) -> list[Path]:
    if path.is_file() and path.name == RESULTS_NAME:
        return [path.parent]
    if not path.exists():
        raise ReportError(f"{path}: no such folder")
    if not path.is_dir():
        raise ReportError(f"{path}: expected a run folder, a folder of run folders, or the CSV file of a study")
    found = _search(path, set())
    if not found:
        raise ReportError(f"{path / RESULTS_NAME}: not found, and no folder below {path} has one")
    return found


def _search(folder: Path, visited: set[Path]) -> list[Path]:
    """Run folders at or below `folder`, by name. `visited` keeps a link back to a parent from looping."""
    resolved = folder.resolve()
    if resolved in visited:
        return []
    visited.add(resolved)
    if (folder / RESULTS_NAME).is_file():
        return [folder]  # a run's own subfolders (checkpoints and the like) are not runs
    found: list[Path] = []
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            found += _search(child, visited)
    if not found and (folder / CONFIG_NAME).is_file():
        return [folder]  # a run that has written no result yet: reading it says so
    return found


# setting, step, task, metric, value, values
_Row = tuple[str, int, str, str, float | None, tuple[float, ...]]


def _parse(reader: Reader, folder: Path) -> pd.DataFrame:
    version = reader.integer("version")
    if version != RESULTS_VERSION:
        raise reader.fail("version", f"this tasso reads version {RESULTS_VERSION}, the file says {version}")

    def task_name(key: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise reader.fail(key, f"expected a task name, found {kind(value)}")
        return whole(value)

    tasks = reader.items("tasks", task_name)
    if not tasks:
        raise reader.fail("tasks", "the list is empty")
    if len(set(tasks)) != len(tasks):
        raise reader.fail("tasks", "a task is named twice")
    finished = reader.flag("finished")
    rows: list[_Row] = []
    learned = []
    for setting in SETTINGS:
        part, found = _setting_rows(reader.inner(setting, reader.get(setting)), setting, tasks, finished)
        rows += found
        learned.append(len(part))
    if learned[0] != learned[1]:
        raise reader.fail("mcil.matrix", f"{learned[1]} rows, but mtil.matrix has {learned[0]}")
    about = {
        "run": str(folder), "method": reader.text("method"), "label": reader.text("label"),
        "model": reader.text("model"), "benchmark": reader.text("benchmark"),
        "sequence": "" if reader.get("sequence") is None else reader.text("sequence"),
        "order": tasks, "seed": reader.integer("seed"), "finished": finished,
    }  # fmt: skip
    rows += [row for row_rows in reader.items("per_task", _cost_reader(reader)) for row in row_rows]
    classes = reader.inner("classes", reader.get("classes"))
    rows += [("", 0, whole(task), "classes", classes.integer(task), ()) for task in classes.content]
    if reader.content.get("alignment") is not None:
        rows += _alignment_rows(reader.inner("alignment", reader.get("alignment")), tasks)
    return typed(pd.DataFrame([(*about.values(), *row) for row in rows], columns=COLUMNS, dtype=object))


def _setting_rows(
    reader: Reader, setting: str, tasks: Sequence[str], finished: bool
) -> tuple[tuple[tuple[float, ...], ...], list[_Row]]:
    """The matrix of a setting, and its rows of the table."""
    size = len(tasks)
    zero_shot = reader.items("zero_shot", lambda key, value: _percent(reader, key, value))
    _check_length(reader, "zero_shot", zero_shot, size)

    def matrix_row(key: str, value: Any) -> tuple[float, ...]:
        if not isinstance(value, list):
            raise reader.fail(key, f"expected a list, found {kind(value)}")
        items = ((f"{key}[{index}]", item) for index, item in enumerate(value))
        # null: an extended run whose early checkpoints were gone
        row = tuple(math.nan if item is None else _percent(reader, place, item) for place, item in items)
        _check_length(reader, key, row, size)
        return row

    matrix = reader.items("matrix", matrix_row)
    if len(matrix) > size or (finished and len(matrix) != size):
        problem = f"wrong size: {len(matrix)} rows for {size} tasks"
        raise reader.fail("matrix", problem + (" in a finished run" if finished else ""))
    rows: list[_Row] = [
        (setting, step, task, "accuracy", value, ())
        for step, values in enumerate((zero_shot, *matrix))
        for task, value in zip(tasks, values, strict=True)
    ]
    found = reader.get("metrics")
    if found is not None:
        inner = reader.inner("metrics", found)
        rows += [(setting, size, "", name, inner.optional_number(name), ()) for name in METRICS]
    elif finished:
        raise reader.fail("metrics", "null in a finished run")
    return matrix, rows


def _cost_reader(reader: Reader) -> Any:
    counter = iter(range(1, 10**9))

    def rows(key: str, value: Any) -> list[_Row]:
        inner, step = reader.inner(key, value), next(counter)
        task = inner.text("task")
        found = {name: inner.optional_number(name) if name in inner.content else None for name in COSTS}
        return [("", step, task, name, number, ()) for name, number in found.items()]

    return rows


def _alignment_rows(reader: Reader, tasks: Sequence[str]) -> list[_Row]:
    bins, limits = reader.integer("bins"), reader.numbers("range")
    if bins < 1:
        raise reader.fail("bins", f"expected at least 1, found {bins}")
    if len(limits) != 2 or limits[0] != 0 or limits[1] <= 0:
        raise reader.fail("range", f"expected [0, a greater number], found {list(limits)}")
    rows: list[_Row] = [("", 0, "", "distance_bins", bins, ()), ("", 0, "", "distance_range", limits[1], ())]
    for key, step in (("zero_shot", 0), ("last", len(tasks))):
        if reader.get(key) is None:  # not measured
            continue
        found = reader.items(key, lambda where, value: _distances(reader.inner(where, value), bins))
        if len(found) != len(tasks):
            raise reader.fail(key, f"wrong size: {len(found)} objects for {len(tasks)} tasks")
        rows += [("", step, task, *row) for task, task_rows in zip(tasks, found, strict=True) for row in task_rows]
    return rows


def _distances(reader: Reader, bins: int) -> list[tuple[str, float | None, tuple[float, ...]]]:
    """Metric, value and values of one task: 1 − cosine between each test image and the text of its class."""

    def natural(where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise reader.fail(where, f"expected a number of images, found {kind(value)}")
        return value

    def distance(where: str, value: Any) -> float | None:
        if value is not None and not is_number(value):
            raise reader.fail(where, f"expected a distance or null, found {kind(value)}")
        return None if value is None else float(value)

    count, first, counts = reader.integer("count"), reader.integer("first_bin"), reader.items("counts", natural)
    if sum(counts) != count:
        raise reader.fail("counts", f"{sum(counts)} images, but count says {count}")
    if first < 0 or first + len(counts) > bins:
        raise reader.fail("first_bin", f"{len(counts)} bins from bin {first} on do not fit into {bins}")
    quantiles = reader.numbers("quantiles")
    if len(quantiles) != _QUANTILES or list(quantiles) != sorted(quantiles):
        raise reader.fail("quantiles", f"expected {_QUANTILES} rising numbers, found {list(quantiles)}")
    classes = tuple(value for value in reader.items("prototypes", distance) if value is not None)
    found = [
        (count, ()), (reader.number("mean"), ()), (None, quantiles), (first, counts), (None, classes),
    ]  # fmt: skip
    return [(name, *row) for name, row in zip(DISTANCES, found, strict=True)]


def _check_length(reader: Reader, key: str, values: Sequence[float], size: int) -> None:
    if len(values) != size:
        raise reader.fail(key, f"wrong size: {len(values)} values for {size} tasks")


def _percent(reader: Reader, key: str, value: Any) -> float:
    if not is_number(value):
        raise reader.fail(key, f"expected a percent, found {kind(value)}")
    if not -1e-6 <= value <= 100 + 1e-6:  # room for rounding in a sum of floats
        raise reader.fail(key, f"expected a percent between 0 and 100, found {value}")
    return float(value)
