"""Extend a finished run by more tasks, in a new run folder. The finished run is not changed.

The new folder is that of an ordinary run over all tasks whose first checkpoints exist already. So it is evaluated,
stopped, resumed and reported like any other, and ends like a run that had all tasks from the start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasso.config import OWN, RunConfig, from_dict, options_of, unwrap
from tasso.config.task_specs import TaskSpec, parse_tasks
from tasso.data import BENCHMARKS
from tasso.data.readers import check_places
from tasso.data.steps import task_of_step
from tasso.errors import ConfigError, DataError, RunError
from tasso.files import no_run
from tasso.training.learner import Learner, learn_resolved
from tasso.training.resolve import resolve
from tasso.training.results import check_complete
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")


def extend(run: Path, tasks: Any, out: Path | None = None, options: Mapping[str, Any] | None = None) -> Path:
    """Learn more tasks after those of a finished run; returns the new run folder. The same call resumes a stopped one.

    Args:
        run: the finished run; its last model is the teacher of the first new task.
        tasks: the new tasks, as for `tasso run --tasks`.
        out: the new folder; by default the name of the run and those of the new tasks, joined by +.
        options: other options of `tasso extend`, such as the device.
    """
    old_folder = RunFolder(run)
    old_results = _finished_results(old_folder)
    new_tasks = parse_tasks(tasks)
    out = out or run.with_name("+".join([run.name, *(task["name"] for task in new_tasks)]))
    if out.resolve() == run.resolve():
        raise ConfigError(f"out: {out} is the run itself; the extended run needs another folder")
    config, method = resolve(extended_config(old_folder, old_results, new_tasks, out, options or {}))

    def begin(learner: Learner) -> None:
        folder = learner.folder
        _warn_of_removed_checkpoints(old_folder, old_results)
        for index, name in enumerate(old_results["tasks"]):
            if folder.writes:
                folder.take_checkpoint(index, name, old_folder)
        if folder.read_results() is None:
            # Written last: from now on the old folder is not needed.
            settings = [setting for setting in ("mtil", "mcil", "seen") if setting in old_results]
            old = {key: old_results[key] for key in ("tasks", *settings, "per_task")}
            folder.write_results({**learner.first_results(), "extends": {"run": run.name, **old}})

    earlier = [task for task in unwrap(config.tasks) if task["name"] in old_results["tasks"]]
    with _advice_on_moved(earlier, run):
        learn_resolved(config, method, (old_results, run), begin, rerun_option="another --out")
    return out


@contextlib.contextmanager
def _advice_on_moved(tasks: list[TaskSpec], run: Path) -> Iterator[None]:
    """Add to an error about data what to do where folders of the finished run are not there any more."""
    try:
        yield
    except DataError as error:
        try:
            check_places(tasks)
        except DataError:
            raise DataError(
                f"{error}. {run} learned it. If it has moved, repeat the command of that run with the new place "
                f"(tasso run --tasks NAME=NEWPLACE … --out {run}), which records it; then extend"
            ) from None
        raise


def extended_config(
    folder: RunFolder, results: Mapping[str, Any], new_tasks: list[TaskSpec], out: Path, options: Mapping[str, Any]
) -> RunConfig:
    """The configuration of the finished run with more tasks."""
    config = folder.read_config()
    changeable = sorted(options_of(RunConfig, command="extend").keys() - {"tasks"})
    if unknown := sorted(set(options) - set(changeable)):
        raise ConfigError(f"extend: {unknown[0]!r} is as it was in {folder.path}. Options: {', '.join(changeable)}")
    old_names: list[str] = results["tasks"]
    taken = {name.casefold() for name in old_names}
    if duplicates := [task["name"] for task in new_tasks if task["name"].casefold() in taken]:
        raise ConfigError(
            f"tasks: {folder.path} has a task {duplicates[0]!r} already; give it another name, as in NEW=PLACE"
        )
    specs = {task["name"]: task for task in config.tasks or ()}
    old_tasks = []
    for name in old_names:
        task = task_of_step(name) if config.split_classes else name
        # A step becomes a task with some classes: the new tasks are not split.
        classes = {"classes": results["class_names"][name]} if config.split_classes else {}
        old_tasks.append({**specs.get(task, {"from": f"{config.benchmark}:{task}"}), "name": name, **classes})
    catalogued = config.benchmark in BENCHMARKS
    values = {
        **config.to_dict(),
        "benchmark": f"{config.benchmark}+{OWN}" if catalogued else config.benchmark,
        "tasks": [*old_tasks, *new_tasks],
        "sequence": "S1",
        "limit_tasks": None,
        "split_classes": None,
        "class_order": None,
        "score_seen": config.scores_seen,
        "same_names": config.same_names or (None if config.tasks else "apart"),  # own tasks would merge them
        "reference": config.reference or (config.benchmark if catalogued else None),
        "overwrite": False,
        **options,
        "out": str(out),
    }
    return from_dict(values, "extend")


def _finished_results(folder: RunFolder) -> dict[str, Any]:
    """Results of a run that can be extended: it is finished and has its last checkpoint."""
    if not folder.config_file.exists():
        raise RunError(no_run(folder.path))
    results = folder.read_results()
    if not results or not results["finished"]:
        raise RunError(f"{folder.path}: this run is not finished; repeat the command that started it, then extend it")
    check_complete(results, folder.results_file)
    last = len(results["tasks"]) - 1
    if not folder.has_checkpoint(last, results["tasks"][last]):
        file = folder.checkpoint_file(last, results["tasks"][last])
        raise RunError(f"{file} is missing, so there is no model to go on from (sweeps: --keep-checkpoints last)")
    return results


def _warn_of_removed_checkpoints(folder: RunFolder, results: Mapping[str, Any]) -> None:
    removed = [name for index, name in enumerate(results["tasks"]) if not folder.has_checkpoint(index, name)]
    if removed:
        log.warning(
            "%s: the checkpoints after %s were removed, so their accuracy on the new tasks cannot be measured. It is "
            "left open, and so are the metrics that need it",
            folder.path, ", ".join(removed),
        )  # fmt: skip
