"""Experiment trackers (TensorBoard, W&B, MLflow): they get the losses, accuracies and metrics of a run.

`log.jsonl` is always written. A tracker that fails is logged once, not used any more, and does not stop the run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tasso.config import RunConfig, Tracker
from tasso.errors import ConfigError, install

log = logging.getLogger("tasso")

Options = Mapping[str, Any]
Scalars = Mapping[str, float]


class Backend(Protocol):
    """What a tracker must implement. `step` counts optimiser steps over all tasks."""

    def log_scalars(self, values: Scalars, step: int) -> None: ...

    def close(self, finished: bool) -> None: ...


class TensorBoard:
    """Event files in RUN/tracking/tensorboard; a resumed run adds one."""

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("options", "\n".join(f"    {key}: {value}" for key, value in options.items()))

    def log_scalars(self, values: Scalars, step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        self.writer.close()


class WandB:
    """Configured by wandb's environment variables (WANDB_PROJECT, WANDB_MODE, …); a resumed run keeps its id."""

    def __init__(self, folder: Path, name: str, options: Options) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "wandb-id.txt"
        run_id = file.read_text(encoding="utf-8").strip() if file.is_file() else None
        self.run = wandb.init(dir=str(folder), name=name, config=dict(options), id=run_id, resume="allow")
        file.write_text(self.run.id, encoding="utf-8")

    def log_scalars(self, values: Scalars, step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """Configured by mlflow's environment variables (MLFLOW_TRACKING_URI, …); a resumed run keeps its id."""

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

    def log_scalars(self, values: Scalars, step: int) -> None:
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


BACKENDS: dict[Tracker, Callable[[Path, str, Options], Backend]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def check_installed(tracker: Tracker | None) -> None:
    """Raise a ConfigError if the tracker's package, which has its name, is missing."""
    from importlib.util import find_spec

    if tracker and find_spec(tracker) is None:
        raise ConfigError(f"track: {tracker} is not installed: {install(tracker)}")


class Tracking:
    """The tracker of one run, or none. If it raises anything, a warning is logged and it is not used any more."""

    def __init__(self, tracker: Tracker | None, open_backend: Callable[[], Backend] | None) -> None:
        self.tracker = tracker
        self.backend: Backend | None = None
        if open_backend:
            self.backend = self._try(open_backend)

    def step(self, task: str, step: int, values: Scalars) -> None:
        """Log the loss terms of a step; `step` counts over all tasks."""
        self._log({f"loss/{task}/{name}": value for name, value in values.items()}, step)

    def row(self, tasks: list[str], settings: Mapping[str, Sequence[float | None]], step: int) -> None:
        """Log the accuracies on all tasks, and their mean if all are known."""
        values = {f"{s}/{task}": v for s, row in settings.items() for task, v in zip(tasks, row, strict=True)}
        for setting, row in settings.items():
            known = [value for value in row if value is not None]
            values[f"{setting}/mean"] = sum(known) / len(known) if len(known) == len(row) else None
        self._log(values, step)

    def metrics(self, settings: Mapping[str, Mapping[str, float]], step: int) -> None:
        """Log the metrics of a finished run."""
        self._log({f"{s}/{name}": v for s, values in settings.items() for name, v in values.items()}, step)

    def close(self, finished: bool) -> None:
        """Close the tracker when the run has finished or stopped."""
        if backend := self.backend:
            self._try(lambda: backend.close(finished))
        self.backend = None

    def _log(self, values: Mapping[str, float | None], step: int) -> None:
        """Log the values that are finite numbers."""
        finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        if self.backend and finite:
            backend = self.backend
            self._try(lambda: backend.log_scalars(finite, step))

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # of files, networks, servers: anything
            self.backend = None
            log.warning("track: %s failed and is not used any more: %s", self.tracker, error)
            return None


def open_tracking(config: RunConfig, folder: Path, options: Options, *, writes: bool) -> Tracking:
    """The tracker that a configuration names; no tracker if there is none or if this rank does not write.

    Args:
        folder: the run's folder for files of trackers.
        options: options of the run, for the tracker to show.
    """
    if not config.track or not writes:
        return Tracking(config.track, None)
    make = BACKENDS[config.track]
    return Tracking(config.track, lambda: make(folder, config.label or config.out.name, options))
