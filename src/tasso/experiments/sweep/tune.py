"""`tasso tune`: the learning rate of a run, chosen on validation images of its first tasks.

The option `--tune` is another thing: which weights are trained (`models/tuning.py`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tasso.config import METHOD, RunConfig, absolute_paths, options_of
from tasso.data import BENCHMARKS, TASK_IMAGES, task_order, with_benchmark_options
from tasso.errors import ConfigError, RunError, TassoError
from tasso.experiments.sweep.choose import RATE, By, Choice, choices, for_choice
from tasso.experiments.sweep.grid import Grid
from tasso.experiments.sweep.jobs import AXES
from tasso.experiments.sweep.run_jobs import Execution, run_jobs
from tasso.files import write_text
from tasso.methods.defaults import with_defaults
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")

FIRST_TASKS = 2
FACTORS = (0.1, 1 / 3, 1, 3, 10, 30)  # of the rate that the run would take
BEGIN = slice(1, 4)  # those tried first; more while the best is at an end
BY: By = "mean"
TUNED = "tuned.yaml"


def tune(config: RunConfig) -> tuple[Choice, Path]:
    """Try rates around that of the run; returns what was tried, and the file of the run with the best of them.

    Runs and file are in a folder beside the run's own. Finished runs are not repeated.

    Raises:
        KeyboardInterrupt: stopped; the same call goes on from what is saved.
    """
    folder = config.out.with_name(f"{config.out.name}-tune")
    if config.overwrite:
        raise ConfigError(f"overwrite: finished runs are not repeated; delete {folder} to try all rates again")
    centre = float(with_defaults(config)[0].lr)
    ladder = [float(f"{centre * factor:.1e}") for factor in FACTORS]
    rates: Sequence[float] = ladder[BEGIN]
    tasks = ", ".join(first_tasks(config))
    while True:
        log.info("learning %s with rates %s", tasks, ", ".join(f"{rate:g}" for rate in rates))
        grid = for_choice(_grid(config, rates))
        summary = run_jobs(grid.jobs(), folder, Execution(device=config.device, keep="none"))
        if summary.stopped:
            raise KeyboardInterrupt("stopped; the same command goes on from what is saved")
        [choice] = choices(grid.jobs(), [RATE], folder, BY)
        if choice.best is None:
            raise RunError("\n".join(["tune: no run was finished", *summary.lines()]))
        wider = widened(rates, choice.best.options[RATE], ladder)
        if wider == rates:
            break
        rates = wider
    chosen = dataclasses.replace(config, **{RATE: choice.best.options[RATE]})
    out = free_folder(chosen)
    if out != config.out:
        log.info("%s has another run already, so the run with this rate gets the folder %s", config.out, out)
    file = folder / TUNED
    values = {**_given(chosen), "out": str(out)}
    write_text(file, yaml.safe_dump(values, sort_keys=False))
    return choice, file


def free_folder(config: RunConfig) -> Path:
    """The run's own folder, or one beside it where that holds a run with other options or something else."""
    resolved, _ = resolve(config)

    def is_free(out: Path) -> bool:
        try:
            RunFolder(out).check_usable(resolved)
        except TassoError:
            return False
        return True

    ends = ["", "-tuned", *(f"-tuned-{number}" for number in range(2, 100))]
    return next(filter(is_free, (config.out.with_name(config.out.name + end) for end in ends)), config.out)


def widened(rates: Sequence[float], best: float, ladder: Sequence[float]) -> Sequence[float]:
    """The rates with the next one of the ladder, if the best is at an end and there is a next one."""
    first, last = ladder.index(rates[0]), ladder.index(rates[-1])
    return ladder[max(0, first - (best == rates[0])) : last + 1 + (best == rates[-1])]


def _given(config: RunConfig) -> dict[str, Any]:
    """The run's method and its options that differ from the defaults, with absolute paths."""
    given = dataclasses.replace(config, **absolute_paths(config, names=(*BENCHMARKS, TASK_IMAGES)))
    defaults = RunConfig().to_dict()
    return {key: value for key, value in given.to_dict().items() if key == "method" or value != defaults[key]}


def first_tasks(config: RunConfig) -> list[str]:
    """What is learned: tasks, or steps where classes are learned in steps."""
    in_steps = with_benchmark_options(config).split_classes is not None
    names = [f"step {number}" for number in range(1, FIRST_TASKS + 1)] if in_steps else task_order(config)
    return names[:FIRST_TASKS][: config.limit_tasks]


def _grid(config: RunConfig, rates: Sequence[float]) -> Grid:
    """The run over its first tasks, once for each rate."""
    given = _given(config)
    hyper = {METHOD + key: value for key, value in config.method.items() if key != "name"}
    common = {key: given[key] for key in options_of(RunConfig, command="sweep") if key in given and key not in AXES}
    return Grid(
        methods=(config.method["name"],),
        sequences=(config.sequence,),
        seeds=(config.seed,),
        common={**common, **hyper, "limit_tasks": len(first_tasks(config))},
        overrides={RATE: tuple(rates)},
    )
