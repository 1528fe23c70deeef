"""Run many jobs: skip what is finished, resume what was interrupted, and sum up how it ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tasso.data import task_order
from tasso.data.images.shared import place_for_images
from tasso.errors import RunError
from tasso.experiments.sweep.devices import cores_for_each, devices_for
from tasso.experiments.sweep.execution import Execution as Execution
from tasso.experiments.sweep.jobs import Job, distinct
from tasso.experiments.sweep.local import run_local
from tasso.experiments.sweep.mps import mps
from tasso.experiments.sweep.work import Outcome, Work
from tasso.progress import progress
from tasso.training.run_folder import RunFolder
from tasso.training.stopping import stop_signals

log = logging.getLogger("tasso")

LOGS = "logs"


@dataclass
class Summary:
    """How a sweep ended."""

    folder: Path
    total: int
    before: int = 0  # finished already
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # error by name of the run
    stopped: bool = False

    @property
    def left(self) -> int:
        return self.total - self.before - self.finished - len(self.failed)

    def standing(self) -> str:
        """How far it is, in a few words."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{self.before + self.finished} of {self.total} runs finished{failed}, {self.left} left"

    def lines(self) -> list[str]:
        runs = f"{self.total} runs in {self.folder}: " if self.total != 1 else f"1 run in {self.folder}: "
        text = f"{runs}{self.before + self.finished} finished"
        text += f" ({self.before} of them before)" if self.before else ""
        text += f", {len(self.failed)} failed" if self.failed else ""
        text += f", {self.left} left; the same command goes on" if self.left else ""
        lines = [text]
        for name, error in self.failed.items():
            lines += [f"  {name}: {error}", f"    log: {log_file(self.folder, name)}"]
        return lines


def log_file(folder: Path, name: str) -> Path:
    """The log of a run: beside the run folders, so that it exists even if no folder was made."""
    return folder / LOGS / f"{name}.log"


def is_finished(folder: Path) -> bool:
    """Does this folder hold a finished run? A damaged one is not finished; running it reports the damage."""
    try:
        results = RunFolder(folder).read_results()
    except RunError:
        return False
    return bool(results and results["finished"])


def check(jobs: Sequence[Job]) -> None:
    """Raise an error for runs that cannot work, before the first one begins."""
    for job in jobs:
        task_order(job.config(Path()))


def run_jobs(jobs: Sequence[Job], folder: Path, execution: Execution | None = None) -> Summary:
    """Run all jobs that are not finished; each has its folder under `folder`.

    A job that fails does not stop the others. Jobs with a tag are timed: they come last, one at a time, each in a
    process of its own.
    """
    execution = execution or Execution()
    jobs = distinct(jobs)
    check(jobs)
    pending = [job for job in jobs if not is_finished(folder / job.name)]
    if pending and execution.engine == "local":
        # Raises if there are none, before anything is made.
        devices_for(pending, execution)
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    summary = Summary(folder, len(jobs), before=len(jobs) - len(pending))
    if not pending:
        return summary
    log.info("%s; logs of single runs: %s", summary.standing(), folder / LOGS)
    with stop_signals() as stop, progress("runs", len(jobs), summary.before) as advance:

        def report(outcome: Outcome) -> None:
            # The folder counts: a run may have been finished by a process that died before it could report.
            if is_finished(folder / outcome.name):
                summary.finished += 1
                log.info("%s: finished; %s", outcome.name, summary.standing())
            elif outcome.status == "stopped":
                summary.stopped = True
                return
            else:
                summary.failed[outcome.name] = outcome.error
                log.warning("%s: failed: %s; %s", outcome.name, outcome.error, summary.standing())
            advance(1, f"{len(summary.failed)} failed" if summary.failed else "")

        for timed in (False, True):
            some = [job for job in pending if bool(job.tag) == timed]
            if some and not stop.is_set():
                _run_on_engine(execution, some, folder, stop, report, timed)
        summary.stopped |= stop.is_set()
    return summary


def _run_on_engine(
    execution: Execution,
    jobs: Sequence[Job],
    folder: Path,
    stop: threading.Event,
    report: Callable[[Outcome], None],
    timed: bool,
) -> None:
    devices = devices_for(jobs, execution)[: 1 if timed else len(jobs)] if execution.engine == "local" else []
    works = [_work(job, folder, execution, len(devices)) for job in jobs]
    if execution.engine == "slurm":
        from tasso.experiments.sweep.on_slurm import run_on_slurm

        logs = folder / LOGS / "slurm"
        run_on_slurm(works, logs, execution.at_once, stop, report, execution.slurm)
    elif execution.engine == "ray":
        from tasso.experiments.sweep.on_ray import run_on_ray

        run_on_ray(works, 1 if timed else execution.at_once or 1, stop, report, execution.device)
    else:
        log.info("%d at a time on %s", len(devices), ", ".join(dict.fromkeys(devices)))
        with mps(devices), place_for_images(folder) as place:
            sharing = works if timed else [replace(work, shared=str(place)) for work in works]
            run_local(sharing, devices, stop, report, fresh=timed)


def _work(job: Job, folder: Path, execution: Execution, here_at_once: int) -> Work:
    """A job as a worker gets it. Runs in parallel on this machine share its cores."""
    options, threads = job.config(folder, device=execution.device).to_dict(), None
    if here_at_once > 1:
        share = cores_for_each(here_at_once)
        options["workers"] = options["workers"] or share
        if "OMP_NUM_THREADS" not in os.environ:
            threads = share
    return Work(job.name, options, str(log_file(folder, job.name)), execution.keep, threads=threads)
