"""Tells an experiment tracker what the run's own log is told: losses, accuracies, metrics.

`log.jsonl` is always written. A tracker is a guest: what goes wrong with it is said once and does not stop the run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tasso.config import RunConfig, Tracker
from tasso.errors import ConfigError

log = logging.getLogger("tasso")

Options = Mapping[str, Any]
Numbers = Mapping[str, float]


class Backend(Protocol):
    """What a tracker must be able to do. `step` counts optimiser steps over all tasks."""

    def numbers(self, values: Numbers, step: int) -> None: ...

    def close(self, finished: bool) -> None: ...


class TensorBoard:
    """Event files in RUN/tracking/tensorboard; a run that goes on adds one."""

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("options", "\n".join(f"    {key}: {value}" for key, value in options.items()))

    def numbers(self, values: Numbers, step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        self.writer.close()


class WandB:
    """Project and login are wandb's own business (WANDB_PROJECT, WANDB_MODE, …); a run that goes on keeps its id."""

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "wandb-id.txt"
        known = file.read_text(encoding="utf-8").strip() if file.is_file() else None
        self.run = wandb.init(dir=str(folder), name=name, config=dict(options), id=known, resume="allow")
        file.write_text(self.run.id, encoding="utf-8")

    def numbers(self, values: Numbers, step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """Where runs go is mlflow's own business (MLFLOW_TRACKING_URI, …); a run that goes on keeps its id."""

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        from mlflow import MlflowClient

        folder.mkdir(parents=True, exist_ok=True)
        self.client, file = MlflowClient(), folder / "mlflow-id.txt"
        if file.is_file():
            self.id = file.read_text(encoding="utf-8").strip()
            self.client.update_run(self.id, status="RUNNING")
        else:
            found = self.client.get_experiment_by_name("tasso")
            experiment = found.experiment_id if found else self.client.create_experiment("tasso")
            self.id = self.client.create_run(experiment, run_name=name).info.run_id
            for key, value in options.items():
                self.client.log_param(self.id, key, value)
            file.write_text(self.id, encoding="utf-8")

    def numbers(self, values: Numbers, step: int) -> None:
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


BACKENDS: dict[Tracker, Callable[[Path, str, Options], Backend]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}
# What has to be there; torch has its own writer of event files, which needs tensorboard.
MODULES: dict[Tracker, str] = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def check_installed(tracker: Tracker | None) -> None:
    """Raise a ConfigError if the tracker's package is missing; before anything is trained."""
    from importlib.util import find_spec

    if tracker and find_spec(MODULES[tracker]) is None:
        raise ConfigError(f"track: {tracker} is not installed: pip install 'tasso[{tracker}]'")


class Tracking:
    """The tracker of one run, or none. Whatever it raises is told once, and from then on it is left alone."""

    def __init__(self, tracker: Tracker | None, open_backend: Callable[[], Backend] | None) -> None:
        self.tracker = tracker
        self.backend: Backend | None = None
        if open_backend:
            self.backend = self._try(open_backend)

    def step(self, task: str, step: int, values: Numbers) -> None:
        """Losses of a step; `step` counts over all tasks."""
        self._numbers({f"loss/{task}/{name}": value for name, value in values.items()}, step)

    def row(self, tasks: list[str], settings: Mapping[str, Sequence[float | None]], step: int) -> None:
        """Accuracies on all tasks, and their mean where all are known."""
        values = {f"{s}/{task}": v for s, row in settings.items() for task, v in zip(tasks, row, strict=True)}
        for setting, row in settings.items():
            known = [value for value in row if value is not None]
            values[f"{setting}/mean"] = sum(known) / len(known) if len(known) == len(row) else None
        self._numbers(values, step)

    def metrics(self, settings: Mapping[str, Mapping[str, float]], step: int) -> None:
        """What sums up the run."""
        self._numbers({f"{s}/{name}": v for s, values in settings.items() for name, v in values.items()}, step)

    def close(self, finished: bool) -> None:
        """The run is over, or stopped."""
        if backend := self.backend:
            self._try(lambda: backend.close(finished))
        self.backend = None

    def _numbers(self, values: Mapping[str, float | None], step: int) -> None:
        finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        if self.backend and finite:
            backend = self.backend
            self._try(lambda: backend.numbers(finite, step))

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # trackers raise errors of many kinds: of files, of networks, of servers
            self.backend = None
            log.warning("track: %s failed and is left alone from here on: %s", self.tracker, error)
            return None


def open_tracking(config: RunConfig, folder: Path, options: Options, *, writes: bool) -> Tracking:
    """The tracker that a configuration asks for. Of several processes one tracks.

    Args:
        folder: the run's folder for what trackers keep.
        options: what makes the run this run, for the tracker to show.
    """
    if not config.track or not writes:
        return Tracking(config.track, None)
    make = BACKENDS[config.track]
    return Tracking(config.track, lambda: make(folder, config.label or config.out.name, options))
