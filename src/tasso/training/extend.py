"""Goes on from a finished run with more tasks, in a folder of its own: nothing of the finished run is changed.

The new folder is that of an ordinary run over all tasks whose first models are there already. So it is evaluated,
stopped, resumed and reported as any other, and ends as a run would that had known all tasks from the start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasso.config import OWN, RunConfig, from_dict
from tasso.data import BENCHMARKS, TaskSequence, load_sequence
from tasso.errors import ConfigError, RunError
from tasso.task_specs import Place, parse_tasks
from tasso.training.learner import Learner, learn_resolved
from tasso.training.resolve import resolve
from tasso.training.run_folder import MAY_CHANGE, RunFolder, check_data

log = logging.getLogger("tasso")

# Options that may be other than in the run that is extended; all others are its own.
OPTIONS = tuple(sorted(MAY_CHANGE - {"out", "overwrite"} | {"pack_dir"}))


def extend(run: Path, tasks: Any, out: Path | None = None, options: Mapping[str, Any] | None = None) -> Path:
    """Learn more tasks after those of a finished run. Returns the new run folder; the same call goes on if stopped.

    Args:
        run: the finished run; its last model is the teacher of the first new task.
        tasks: what to learn, as `tasso run --tasks` takes it.
        out: the new folder; by default the old one's name with those of the new tasks, joined by +.
        options: others of `OPTIONS`, such as the device.
    """
    before = RunFolder(run)
    results = _finished_results(before)
    new = parse_tasks(tasks)
    out = out or run.with_name("+".join([run.name, *(place["name"] for place in new)]))
    if out.resolve() == run.resolve():
        raise ConfigError(f"out: {out} is the run itself; the extended run needs a folder of its own")
    config, method = resolve(extended_config(before, results, new, out, options or {}))

    def load() -> TaskSequence:
        wants_reference = any(request.name == "reference" for request in method.image_requests())
        sequence = load_sequence(config, with_reference=wants_reference)
        check_data(results, sequence.contents(), run)
        _tell_what_is_missing(before, results)
        return sequence

    def begin(learner: Learner) -> None:
        folder = learner.folder
        for index, name in enumerate(results["tasks"]):
            if folder.writes:
                folder.take_checkpoint(index, name, before)
        if folder.read_results() is None:
            # Written last: from now on the folder can do without the old one.
            folder.write_results({**learner.first_results(), "extends": earlier_results(run, results)})

    learn_resolved(config, method, load, begin, repeated_by="another --out")
    return out


def extended_config(
    folder: RunFolder, results: Mapping[str, Any], new: list[Place], out: Path, options: Mapping[str, Any]
) -> RunConfig:
    """The run's own configuration with more tasks."""
    config = folder.read_config()
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ConfigError(f"extend: {unknown[0]!r} is as it was in {folder.path}. Options: {', '.join(OPTIONS)}")
    learned: list[str] = results["tasks"]
    known = {name.casefold() for name in learned}
    if twice := [place["name"] for place in new if place["name"].casefold() in known]:
        raise ConfigError(f"tasks: {folder.path} has a task {twice[0]!r} already; call it otherwise, as in NEW=PLACE")
    if config.tasks:
        by_name = {place["name"]: place for place in config.tasks}
        old = [by_name[name] for name in learned]
    else:
        old = [{"name": name, "from": f"{config.benchmark}:{name}"} for name in learned]
    catalogued = config.benchmark in BENCHMARKS
    values = {
        **config.to_dict(),
        "benchmark": f"{config.benchmark}+{OWN}" if catalogued else config.benchmark,
        "tasks": [*old, *new],
        "sequence": "S1",
        "limit_tasks": None,
        "reference": config.reference or (config.benchmark if catalogued else None),
        "overwrite": False,
        **options,
        "out": str(out),
    }
    return from_dict(values, "extend")


def earlier_results(run: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """What the run had measured, as it was: its MCIL is that among fewer classes."""
    kept = {key: results[key] for key in ("tasks", "mtil", "mcil", "per_task")}
    return {"run": run.name, **kept}


def _finished_results(folder: RunFolder) -> dict[str, Any]:
    if not folder.config_file.exists():
        raise RunError(f"{folder.path}: not a run folder")
    results = folder.read_results()
    if not results or not results["finished"]:
        raise RunError(f"{folder.path}: this run is not finished; repeat the command that started it, then extend it")
    last = len(results["tasks"]) - 1
    if not folder.has_checkpoint(last, results["tasks"][last]):
        file = folder.checkpoint_file(last, results["tasks"][last])
        raise RunError(f"{file} is missing, and with it the model to go on from (sweeps: --keep-checkpoints last)")
    return results


def _tell_what_is_missing(folder: RunFolder, results: Mapping[str, Any]) -> None:
    gone = [name for index, name in enumerate(results["tasks"]) if not folder.has_checkpoint(index, name)]
    if gone:
        log.warning(
            "%s: the models after %s are gone, so their accuracy on the new tasks cannot be measured. It is left open, "
            "and so are the metrics that need it",
            folder.path, ", ".join(gone),
        )  # fmt: skip
