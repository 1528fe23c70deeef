"""Read run folders into the table of results. Every complaint about a results.json names the file and the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tasso.config import RunConfig, options_of
from tasso.config.portable import portable_options
from tasso.evaluation.metrics import step_accuracies
from tasso.files import CONFIG, RESULTS, no_run, not_too_deep, parse_json, read_text, read_yaml
from tasso.report.frame import COLUMNS, COSTS, DISTANCES, SEEN, SETTINGS, SPLITS, STEPS, Setting, metric_names, typed
from tasso.report.reader import ReportError, Value, kind
from tasso.report.study import STUDY_ENDINGS, read_study

RESULTS_VERSION = 1
MAX_DISTANCE = 10  # 1 − cosine is at most 2; figures have a bar for each hundredth or so
# Options of a run that change its numbers and need not stand in its label.
TRAINING = (
    *(key for key in options_of(RunConfig, scope="optimisation") if key != "seed"),
    "precision", "teacher_precision", "optimizer_precision",
    "reference", "reference_images", "reference_seed", "reference_texts",
    "test_per_class",  # now a condition of the benchmark, but not of earlier versions
)  # fmt: skip
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
    frame = pd.concat(frames.values(), ignore_index=True)
    return name_options_apart(name_data_apart(name_orders_apart(frame)))


def name_data_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Add a number to the names of benchmarks whose tasks have the same names, but other classes or images: own
    folders that have changed, or others. Such runs are no repeats. What a study's runs learned from is not known."""
    keys = ["benchmark", "split", "model", "sequence", "order"]
    renamed: dict[str, str] = {}
    for _, runs in frame[[*keys, "run"]].drop_duplicates().groupby(keys)["run"]:
        if len(runs) == 1:
            continue
        data = {run: _data(Path(run) / RESULTS) for run in runs if (Path(run) / RESULTS).is_file()}
        versions = list(dict.fromkeys(version for version in data.values() if version))
        if len(versions) > 1:
            renamed |= {run: f"data {versions.index(version) + 1}" for run, version in data.items() if version}
    return _with_additions(frame, "benchmark", renamed)


def _with_additions(frame: pd.DataFrame, column: str, additions: Mapping[str, str]) -> pd.DataFrame:
    """The frame with additions, by run, in brackets behind the names in a column."""
    if not additions:
        return frame
    names = [
        f"{name} ({additions[run]})" if run in additions else name
        for name, run in zip(frame[column], frame["run"], strict=True)
    ]
    return frame.assign(**{column: pd.Series(names, index=frame.index, dtype=object)})


def _data(file: Path) -> str:
    """Classes and number of images of a run's tasks. Its splits may be drawn by other seeds."""
    results = parse_json(read_text(file))
    try:
        tasks = results["data"]["tasks"]
        images = {name: sum(task.get(part, 0) for part in ("train", "val", "test")) for name, task in tasks.items()}
        return repr((images, results["class_names"]))
    except (KeyError, TypeError, AttributeError):  # earlier versions did not record it
        return ""


def name_options_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to the names of runs the options of training in which runs of one name differ, as in `LwF (lr 0.0003)`.

    Such runs are no repeats. What a run folder's config.yaml does not say is not known here, nor is a study's.
    """
    named = ["label", "benchmark", "split", "model"]
    renamed: dict[str, str] = {}
    for _, runs in frame[[*named, "run"]].drop_duplicates().groupby(named)["run"]:
        configs = {run: Path(run) / CONFIG for run in runs}
        if len(configs) == 1 or not all(file.is_file() for file in configs.values()):
            continue
        options = {run: _training_options(file) for run, file in configs.items()}
        differing = [key for key in TRAINING if len({repr(found[key]) for found in options.values()}) > 1]
        for run, found in options.items() if differing else ():
            values = {key: "by default" if found[key] is None else found[key] for key in differing}
            renamed[run] = ", ".join(f"{key} {value}" for key, value in values.items())
    return _with_additions(frame, "label", renamed)


def _training_options(file: Path) -> dict[str, Any]:
    """Those of a run, without paths of this machine; options that are newer than the run have their defaults."""
    options = {**RunConfig().to_dict(), **read_yaml(file)}
    return portable_options({key: options[key] for key in TRAINING}, options_of(RunConfig))


def name_orders_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the number of tasks to the names of orders that share a name but not their tasks, as of a run and its
    extension: else tables would show rows that cannot be told apart."""
    keys = ["benchmark", "split", "model", "sequence"]
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
    names = [renamed.get(key, key[3]) for key in zip(*(frame[name] for name in (*keys, "order")), strict=True)]
    return frame.assign(sequence=pd.Series(names, index=frame.index, dtype=object))


def read_run(folder: str | PathLike[str]) -> pd.DataFrame:
    """Read one run folder."""
    folder = Path(folder)
    file = folder / RESULTS
    if not file.is_file():
        raise ReportError(no_run(folder))
    try:
        content = parse_json(read_text(file))
    except ValueError as error:
        raise ReportError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ReportError(f"{file}: expected a JSON object, found {kind(content)}")
    return _parse(Value(file, content), folder)


def _run_folders(path: Path) -> list[Path]:
    if path.is_file() and path.name == RESULTS:
        return [path.parent]
    if not path.exists():
        raise ReportError(no_run(path))
    if not path.is_dir():
        raise ReportError(f"{path}: expected a run folder, a folder of run folders, or the CSV file of a study")
    with not_too_deep(path):
        found = _search(path, set())
    if not found:
        raise ReportError(no_run(path))
    return found


def _search(folder: Path, visited: set[Path]) -> list[Path]:
    """Run folders at or below `folder`, by name. `visited` keeps a link back to a parent from looping."""
    resolved = folder.resolve()
    if resolved in visited:
        return []
    visited.add(resolved)
    if (folder / RESULTS).is_file():
        return [folder]  # a run's own subfolders (checkpoints and the like) are not runs
    found: list[Path] = []
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            found += _search(child, visited)
    if not found and (folder / CONFIG).is_file():
        return [folder]  # a run that has written no result yet: reading it says so
    return found


# setting, step, task, metric, value, values
_Row = tuple[str, int, str, str, float | None, tuple[float, ...]]


def _parse(results: Value, folder: Path) -> pd.DataFrame:
    version = results["version"].integer()
    if version != RESULTS_VERSION:
        raise results["version"].fail(f"this tasso reads version {RESULTS_VERSION}, the file says {version}")
    tasks = tuple(name.text("a task name") for name in results["tasks"].items())
    if not tasks:
        raise results["tasks"].fail("the list is empty")
    if len(set(tasks)) != len(tasks) or "" in tasks:
        raise results["tasks"].fail("a task has no name" if "" in tasks else "a task is named twice")
    finished = results["finished"].flag()
    settings = (*SETTINGS, SEEN) if results.get(SEEN) else SETTINGS
    rows: list[_Row] = [
        row for setting in settings for row in _setting_rows(results[setting], setting, tasks, finished)
    ]
    learned = [len(results[setting]["matrix"].items()) for setting in settings]
    for setting, count in zip(settings, learned, strict=True):
        if count != learned[0]:
            raise results[setting]["matrix"].fail(f"{count} rows, but mtil.matrix has {learned[0]}")
    run = {
        "run": str(folder),
        **{name: results[name].text() for name in ("method", "label", "model")},
        "benchmark": _benchmark(results),
        "split": _split(results.get("split")),
        "sequence": "" if results["sequence"].value is None else results["sequence"].text(),
        "order": tasks,
        "seed": results["seed"].integer(),
        "finished": finished,
    }
    for step, cost in enumerate(results["per_task"].items(), 1):
        task = cost["task"].text()
        for name in COSTS:
            rows.append(("", step, task, name, cost[name].optional_number() if name in cost.value else None, ()))
    classes = {name: results["classes"][name].integer() for name in results["classes"].names()}
    rows += [("", 0, task, "classes", classes.get(task), ()) for task in tasks]
    if alignment := results.get("alignment"):
        rows += _alignment_rows(alignment, tasks)
    return typed(pd.DataFrame([(*run.values(), *row) for row in rows], columns=COLUMNS, dtype=object))


def _benchmark(results: Value) -> str:
    """Its name, and in brackets the options with which its tasks are others: such runs are not compared."""
    name, conditions = results["benchmark"].text(), results.get("conditions")  # earlier versions had none
    return f"{name} ({conditions.text()})" if conditions and conditions.value else name


def _split(split: Value | None) -> str:
    """Earlier versions measured on test images and did not say so."""
    if split is None:
        return "test"
    if split.value not in SPLITS:
        raise split.expected(" or ".join(SPLITS))
    return split.text()


def _setting_rows(part: Value, setting: Setting, tasks: Sequence[str], finished: bool) -> list[_Row]:
    size = len(tasks)
    start: list[float | None] = [_percent(item) for item in _sized(part["zero_shot"], size)]
    # null: not measured
    matrix: list[list[float | None]] = [
        [None if item.value is None else _percent(item) for item in _sized(row, size)] for row in part["matrix"].items()
    ]
    if len(matrix) > size or (finished and len(matrix) != size):
        problem = f"wrong size: {len(matrix)} rows for {size} tasks"
        raise part["matrix"].fail(problem + (" in a finished run" if finished else ""))
    rows: list[_Row] = [
        (setting, step, task, "accuracy", value, ())
        for step, values in enumerate((start, *matrix))
        for task, value in zip(tasks, values, strict=True)
    ]
    metrics = part["metrics"]
    if metrics.value is not None:
        rows += [(setting, size, "", name, metrics[name].optional_number(), ()) for name in metric_names(setting)]
    elif finished:
        raise metrics.fail("null in a finished run")
    if setting == SEEN:
        images = [item.integer("a number of images", least=1) for item in _sized(part["images"], size)]
        before = [item.optional_number() for item in _sized(part["zero_shot_steps"], size)]
        for name, values in zip(STEPS, (step_accuracies(matrix, images), before), strict=True):
            rows += [(setting, step, "", name, value, ()) for step, value in enumerate(values, 1)]
    return rows


def _sized(row: Value, size: int, what: str = "values") -> list[Value]:
    if len(row.items()) != size:
        raise row.fail(f"wrong size: {len(row.items())} {what} for {size} tasks")
    return row.items()


def _percent(item: Value) -> float:
    value = item.number("a percent")
    if not -1e-6 <= value <= 100 + 1e-6:  # room for rounding in a sum of floats
        raise item.expected("a percent between 0 and 100")
    return value


def _alignment_rows(alignment: Value, tasks: Sequence[str]) -> list[_Row]:
    bins = alignment["bins"].integer(least=1)
    limits = [limit.number() for limit in alignment["range"].items()]
    if len(limits) != 2 or limits[0] != 0 or not 0 < limits[1] <= MAX_DISTANCE:
        raise alignment["range"].fail(f"expected [0, a number up to {MAX_DISTANCE}], found {limits}")
    rows: list[_Row] = [("", 0, "", "distance_bins", bins, ()), ("", 0, "", "distance_range", limits[1], ())]
    for key, step in (("zero_shot", 0), ("last", len(tasks))):
        if alignment[key].value is not None:  # measured
            for task, distances in zip(tasks, _sized(alignment[key], len(tasks), "objects"), strict=True):
                rows += [("", step, task, *row) for row in _distance_rows(distances, bins)]
    return rows


def _distance(item: Value, what: str = "a finite number") -> float:
    value = item.number(what)
    if abs(value) > MAX_DISTANCE:
        raise item.expected(f"a distance up to {MAX_DISTANCE}")
    return value


def _distance_rows(part: Value, bins: int) -> list[tuple[str, float | None, tuple[float, ...]]]:
    """Metric, value and values of one task: 1 − cosine between each test image and the text of its class."""
    count, first = part["count"].integer(), part["first_bin"].integer()
    counts = tuple(item.integer("a number of images", least=0) for item in part["counts"].items())
    if sum(counts) != count:
        raise part["counts"].fail(f"{sum(counts)} images, but count says {count}")
    if first < 0 or first + len(counts) > bins:
        raise part["first_bin"].fail(f"{len(counts)} bins from bin {first} on do not fit into {bins}")
    quantiles = tuple(_distance(item) for item in part["quantiles"].items())
    if len(quantiles) != _QUANTILES or list(quantiles) != sorted(quantiles):
        raise part["quantiles"].fail(f"expected {_QUANTILES} rising numbers, found {list(quantiles)}")
    classes = [
        None if item.value is None else _distance(item, "a distance or null") for item in part["prototypes"].items()
    ]
    values: list[tuple[float | None, tuple[float, ...]]] = [
        (count, ()),
        (_distance(part["mean"]), ()),
        (None, quantiles),
        (first, counts),
        (None, tuple(value for value in classes if value is not None)),
    ]
    return [(name, *row) for name, row in zip(DISTANCES, values, strict=True)]
