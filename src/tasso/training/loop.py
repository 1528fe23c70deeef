"""The steps of one task: progress, log, resume state, stop signals, and losses that are not finite."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasso.config import RunConfig
from tasso.distributed import Distributed
from tasso.errors import ModelError, RunError
from tasso.models.clip import check_finite
from tasso.progress import progress
from tasso.training.checkpoints import WEIGHTS
from tasso.training.engine import Training, peak_memory
from tasso.training.run_folder import RunFolder
from tasso.training.stopping import Stopped
from tasso.training.trackers import Tracking

log = logging.getLogger("tasso")

READ_SECONDS = 0.5  # reading a loss waits for the device, so it is read at most this often
LOG_STEPS = 50
STOP_STEPS = 10  # with several processes, steps between two all-reduces of the stop flag


@dataclass
class TaskLoop:
    """Trains one task to its last step, saving a resume state on the way.

    Attributes:
        title: for the progress bar.
        index: of the task in the sequence, from 0.
        steps_before: optimiser steps of all earlier tasks; trackers count steps over all tasks.
        state_metadata: what a resume state must say about itself to belong to this task.
        seconds: training time so far, including that before a resume.
        last_saved: what to go on from after a failure, for messages.
    """

    config: RunConfig
    folder: RunFolder
    tracking: Tracking
    distributed: Distributed
    training: Training
    task: str
    index: int
    title: str
    steps_before: int
    state_metadata: Mapping[str, Any]
    seconds: float = 0.0
    last_saved: str = ""

    def resume(self) -> None:
        """Load the resume state of this task, if there is one."""
        self.last_saved = f"The model before {self.task}" if self.index else "The zero-shot row"
        saved = self.folder.read_state(self.state_metadata)
        if saved is None:
            return
        state, metadata = saved
        self.training.load_state_dict(state, str(self.folder.state_file))
        self.seconds = metadata["seconds"]
        self.last_saved = f"The state at step {self.training.step} of {self.task}"
        log.info("resuming %s at step %d", self.task, self.training.step)

    def run(self, stop: threading.Event) -> None:
        """Train up to the last step. If `stop` is set before, save a resume state and raise `Stopped`."""
        training, steps, device = self.training, self.training.steps, self.training.clip.device
        first_step = last_read = training.step
        seconds_before = self.seconds
        started = read_at = saved_at = time.perf_counter()
        note = ""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with progress(self.title, steps, training.step) as advance:
            while training.step < steps:
                terms = training.advance()
                now = time.perf_counter()
                is_last = training.step == steps
                logs = is_last or training.step % LOG_STEPS == 0
                if logs or now - read_at >= READ_SECONDS:
                    values = self._read(terms, last_read)
                    last_read = training.step
                    now = read_at = time.perf_counter()
                    rate = (training.step - first_step) * training.images_per_step / (now - started)
                    note = " ".join(f"{name} {value:.3f}" for name, value in values.items()) + f", {rate:.0f} images/s"
                    if logs:
                        self.folder.log("step", task=self.task, step=training.step, **values)
                        self.tracking.step(self.task, self.steps_before + training.step, values)
                advance(1, note)
                self.seconds = seconds_before + now - started
                stops = not is_last and self._stops(stop)
                if stops or (not is_last and self._is_time_to_save(now - saved_at)):
                    self._read(terms, last_read)  # a state that is not finite must not replace a good one
                    self.save_state()
                    saved_at, last_read = time.perf_counter(), training.step
                if stops:
                    raise self.stopped(f"at step {training.step} of {steps} of {self.task}")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.seconds = seconds_before + time.perf_counter() - started

    def save_state(self) -> None:
        """Write the resume state. Raises a RunError if it contains inf or NaN."""
        state = self.training.state_dict()
        with self.refuse_nonfinite():
            check_finite(state, WEIGHTS)
        self.folder.write_state(state, {**self.state_metadata, "seconds": self.seconds})
        self.last_saved = f"The state at step {self.training.step} of {self.task}"

    @contextlib.contextmanager
    def refuse_nonfinite(self) -> Iterator[None]:
        """Around saving: a ModelError about weights that contain inf or NaN says what is still there."""
        try:
            yield
        except ModelError as error:
            raise self._diverged(str(error)) from None

    def stopped(self, where: str) -> Stopped:
        """The exception that ends a stopped run and says how to go on."""
        command = "The same command" + (" without --overwrite" if self.config.overwrite else "")
        return Stopped(f"stopped {where}. {command} resumes it from there")

    def measurements(self) -> dict[str, Any]:
        """Entries of `per_task` in results.json after the last step."""
        steps, seconds = self.training.steps, max(self.seconds, 1e-9)
        return {
            "index": self.index,
            "steps": steps,
            "seconds": round(seconds, 3),
            "images_per_second": round(steps * self.training.images_per_step / seconds, 1),
            **peak_memory(self.training.clip.device),
            "trainable_parameters": self.training.trainable_parameters,
        }

    def _read(self, terms: Mapping[str, Tensor], last_read: int) -> dict[str, float]:
        """Loss terms as floats. Raises a RunError if one is not finite; `last_read`: step of the last finite ones."""
        values = {name: float(term) for name, term in terms.items()}
        if bad := [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]:
            since = f" (it was at step {last_read})" if last_read else ""
            raise self._diverged(f"the loss is not finite{since}: {', '.join(bad)}")
        return values

    def _diverged(self, problem: str) -> RunError:
        return RunError(
            f"task {self.task!r}, step {self.training.step}: {problem}. {self.last_saved} is kept in "
            f"{self.folder.path}. Try a smaller --lr with another --out"
        )

    def _stops(self, stop: threading.Event) -> bool:
        """Has any process been asked to stop? Asking the others waits for them, so it is not done at every step."""
        if self.distributed.world_size == 1:
            return stop.is_set()
        return self.training.step % STOP_STEPS == 0 and self.distributed.any(stop.is_set(), self.training.clip.device)

    def _is_time_to_save(self, seconds: float) -> bool:
        if self.config.save_every:
            return self.training.step % self.config.save_every == 0
        return seconds >= 60 * self.config.save_minutes
