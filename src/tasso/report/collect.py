"""Read run folders. All that a report shows comes from `results.json`; nothing here trains or needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from tasso.files import parse_json
from tasso.report.alignment import Alignment, parse_alignment
from tasso.report.reader import Reader, is_number, kind
from tasso.report.reader import ReportError as ReportError

Setting = Literal["mtil", "mcil"]
SETTINGS: tuple[Setting, ...] = ("mtil", "mcil")
METRICS = ("accuracy", "forgetting", "zero_shot_degradation", "transfer", "average", "last")

RESULTS_NAME = "results.json"
CONFIG_NAME = "config.yaml"
RESULTS_VERSION = 1


@dataclass(frozen=True)
class SettingResult:
    """Accuracies in percent: before any task, then one row per learned task, one column per task.

    NaN in the matrix: an extended run whose early models were gone, so that nobody knows.
    """

    zero_shot: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class TaskCost:
    """What learning one task took. A figure the run could not measure is None."""

    task: str
    steps: float | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    peak_memory_bytes: float | None = None
    trainable_parameters: float | None = None
    preparing_seconds: float | None = None
    evaluation_seconds: float | None = None


COST_FIELDS = (
    "steps",
    "seconds",
    "images_per_second",
    "peak_memory_bytes",
    "trainable_parameters",
    "preparing_seconds",
    "evaluation_seconds",
)


@dataclass(frozen=True)
class RunResult:
    """One run folder's results, checked."""

    path: Path
    finished: bool
    method: str
    label: str
    seed: int
    model: str
    benchmark: str
    sequence: str
    tasks: tuple[str, ...]
    mtil: SettingResult
    mcil: SettingResult
    costs: tuple[TaskCost, ...]
    classes: Mapping[str, int]
    # None: the run was made before distances were kept, or has none.
    alignment: Alignment | None = None

    def setting(self, setting: Setting) -> SettingResult:
        return self.mtil if setting == "mtil" else self.mcil

    @property
    def order(self) -> str:
        """The name of the order of its tasks, or the tasks themselves."""
        return self.sequence or ", ".join(self.tasks)

    @property
    def learned(self) -> int:
        """How many tasks have been learned so far."""
        return len(self.mtil.matrix)


def read_runs(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[RunResult]:
    """Read every run under `paths`, each a run folder or a folder that holds run folders at any depth."""
    if isinstance(paths, str | PathLike):
        paths = [paths]
    folders: dict[Path, Path] = {}  # resolved -> as found, so that a run named twice is counted once
    for path in paths:
        for folder in _run_folders(Path(path)):
            folders.setdefault(folder.resolve(), folder)
    return told_apart([read_run(folder) for folder in folders.values()])


def told_apart(runs: Sequence[RunResult]) -> list[RunResult]:
    """Orders of one name over different tasks, as of a run and its extension, get their number of tasks as well: else
    tables would show rows that cannot be told apart."""
    over: dict[tuple[str, str, str], set[tuple[str, ...]]] = {}
    for run in runs:
        over.setdefault((run.benchmark, run.model, run.sequence), set()).add(run.tasks)

    def name(run: RunResult) -> str:
        several = over[run.benchmark, run.model, run.sequence]
        if len(several) == 1 or not run.sequence:
            return run.sequence
        sizes = [len(tasks) for tasks in several]
        which = f"{len(run.tasks)} tasks" if sizes.count(len(run.tasks)) == 1 else ", ".join(run.tasks)
        return f"{run.sequence}: {which}"

    return [replace(run, sequence=name(run)) for run in runs]


def read_run(folder: str | PathLike[str]) -> RunResult:
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
        raise ReportError(f"{path}: expected a run folder or a folder of run folders")
    found = _search(path, set())
    if not found:
        raise ReportError(f"{path / RESULTS_NAME}: not found, and no folder below {path} has one")
    return found


def _search(folder: Path, seen: set[Path]) -> list[Path]:
    """Run folders at or below `folder`, by name. `seen` keeps a link back to a parent from looping."""
    resolved = folder.resolve()
    if resolved in seen:
        return []
    seen.add(resolved)
    if (folder / RESULTS_NAME).is_file():
        return [folder]  # a run's own subfolders (checkpoints and the like) are not runs
    found: list[Path] = []
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            found += _search(child, seen)
    if not found and (folder / CONFIG_NAME).is_file():
        # A run that was started and left nothing: keep it, so that reading it says so, not silence.
        return [folder]
    return found


def _parse(reader: Reader, folder: Path) -> RunResult:
    version = reader.integer("version")
    if version != RESULTS_VERSION:
        raise reader.fail("version", f"this tasso reads version {RESULTS_VERSION}, the file says {version}")

    def task_name(key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise reader.fail(key, f"expected a task name, found {kind(value)}")
        return value

    tasks = reader.items("tasks", task_name)
    if not tasks:
        raise reader.fail("tasks", "the list is empty")
    if len(set(tasks)) != len(tasks):
        raise reader.fail("tasks", "a task is named twice")
    finished = reader.flag("finished")
    mtil = _parse_setting(reader.inner("mtil", reader.get("mtil")), len(tasks), finished)
    mcil = _parse_setting(reader.inner("mcil", reader.get("mcil")), len(tasks), finished)
    if len(mtil.matrix) != len(mcil.matrix):
        problem = f"{len(mcil.matrix)} rows, but mtil.matrix has {len(mtil.matrix)}"
        raise reader.fail("mcil.matrix", problem)
    sequence = reader.get("sequence")
    return RunResult(
        path=folder,
        finished=finished,
        method=reader.text("method"),
        label=reader.text("label"),
        seed=reader.integer("seed"),
        model=reader.text("model"),
        benchmark=reader.text("benchmark"),
        sequence="" if sequence is None else reader.text("sequence"),
        tasks=tasks,
        mtil=mtil,
        mcil=mcil,
        costs=reader.items("per_task", lambda key, value: _parse_cost(reader.inner(key, value))),
        classes=_parse_classes(reader.inner("classes", reader.get("classes"))),
        alignment=_optional_alignment(reader, tasks),
    )


def _parse_setting(reader: Reader, size: int, finished: bool) -> SettingResult:
    zero_shot = reader.items("zero_shot", lambda key, value: _percent(reader, key, value))
    _check_length(reader, "zero_shot", zero_shot, size)

    def matrix_row(key: str, value: Any) -> tuple[float, ...]:
        if not isinstance(value, list):
            raise reader.fail(key, f"expected a list, found {kind(value)}")
        places = ((f"{key}[{index}]", item) for index, item in enumerate(value))
        row = tuple(math.nan if item is None else _percent(reader, place, item) for place, item in places)
        _check_length(reader, key, row, size)
        return row

    matrix = reader.items("matrix", matrix_row)
    if len(matrix) > size or (finished and len(matrix) != size):
        problem = f"wrong size: {len(matrix)} rows for {size} tasks"
        raise reader.fail("matrix", problem + (" in a finished run" if finished else ""))

    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    found = reader.get("metrics")
    if found is not None:
        inner = reader.inner("metrics", found)
        metrics = {name: inner.optional_number(name) for name in METRICS}
    elif finished:
        raise reader.fail("metrics", "null in a finished run")
    return SettingResult(zero_shot, matrix, metrics)


def _parse_cost(reader: Reader) -> TaskCost:
    measured = (reader.optional_number(key) if key in reader.content else None for key in COST_FIELDS)
    return TaskCost(reader.text("task"), *measured)


def _parse_classes(reader: Reader) -> dict[str, int]:
    return {task: reader.integer(task) for task in reader.content}


def _optional_alignment(reader: Reader, tasks: Sequence[str]) -> Alignment | None:
    found = reader.content.get("alignment")
    return None if found is None else parse_alignment(reader.inner("alignment", found), len(tasks))


def _check_length(reader: Reader, key: str, values: Sequence[float], size: int) -> None:
    if len(values) != size:
        raise reader.fail(key, f"wrong size: {len(values)} values for {size} tasks")


def _percent(reader: Reader, key: str, value: Any) -> float:
    if not is_number(value):
        raise reader.fail(key, f"expected a percent, found {kind(value)}")
    if not -1e-6 <= value <= 100 + 1e-6:  # room for rounding in a sum of floats
        raise reader.fail(key, f"expected a percent between 0 and 100, found {value}")
    return float(value)
