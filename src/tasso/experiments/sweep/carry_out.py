"""Carry out many runs: leave out what is finished, go on with what was broken off, and say how it ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasso.data import task_order
from tasso.errors import RunError
from tasso.experiments.sweep.how import How as How
from tasso.experiments.sweep.jobs import Job, distinct
from tasso.experiments.sweep.local import run_local
from tasso.experiments.sweep.slots import devices_for
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

    def lines(self) -> list[str]:
        """What there is to say at the end."""
        runs = f"{self.total} runs in {self.folder}: " if self.total != 1 else f"1 run in {self.folder}: "
        text = f"{runs}{self.before + self.finished} finished"
        text += f" ({self.before} of them before)" if self.before else ""
        text += f", {len(self.failed)} failed" if self.failed else ""
        left = self.total - self.before - self.finished - len(self.failed)
        text += f", {left} left; the same command goes on" if left else ""
        said = [text]
        for name, error in self.failed.items():
            said += [f"  {name}: {error}", f"    log: {log_file(self.folder, name)}"]
        return said


def log_file(folder: Path, name: str) -> Path:
    """Where the log of a run lies: beside the run folders, so that it is there even if no folder was made."""
    return folder / LOGS / f"{name}.log"


def is_finished(folder: Path) -> bool:
    """Does this folder hold a finished run? A damaged one is not finished, and its run says what is wrong."""
    try:
        results = RunFolder(folder).read_results()
    except RunError:
        return False
    return bool(results and results["finished"])


def check(jobs: Sequence[Job]) -> None:
    """Raise an error for runs that cannot be meant, before the first one begins."""
    for job in jobs:
        task_order(job.config(Path()))


def carry_out(jobs: Sequence[Job], folder: Path, how: How | None = None) -> Summary:
    """Learn all runs that are not finished; each has its folder under `folder`.

    A run that fails does not keep the others from being learned. Runs with a tag are timed: they come last, one at a
    time, each in a process of its own.
    """
    how = how or How()
    jobs = distinct(jobs)
    check(jobs)
    left = [job for job in jobs if not is_finished(folder / job.name)]
    if left and how.engine == "local":
        devices_for(left, how.at_once, how.gpus, how.device)  # raises, if there are none, before anything is made
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    summary = Summary(folder, len(jobs), before=len(jobs) - len(left))
    if not left:
        return summary
    with stop_signals() as stop, progress("runs", len(jobs), summary.before) as advance:

        def report(outcome: Outcome) -> None:
            # What counts is in the folder: a run may have been finished by a process that could not say so any more.
            if is_finished(folder / outcome.name):
                summary.finished += 1
                log.info("%s: finished", outcome.name)
            elif outcome.status == "stopped":
                summary.stopped = True
                return
            else:
                summary.failed[outcome.name] = outcome.error
                log.warning("%s: failed: %s", outcome.name, outcome.error)
            advance(1, f"{summary.before + summary.finished} finished, {len(summary.failed)} failed")

        for timed in (False, True):
            some = [job for job in left if bool(job.tag) == timed]
            if some and not stop.is_set():
                _engine(how, some, folder, stop, report, timed)
        summary.stopped |= stop.is_set()
    return summary


def _engine(
    how: How,
    jobs: Sequence[Job],
    folder: Path,
    stop: threading.Event,
    report: Callable[[Outcome], None],
    timed: bool,
) -> None:
    if how.engine == "slurm":
        from tasso.experiments.sweep.on_slurm import run_on_slurm

        works = [_work(job, folder, how) for job in jobs]
        run_on_slurm(works, folder / LOGS / "slurm", how.at_once, stop, report, how.slurm, how.cluster)
    elif how.engine == "ray":
        from tasso.experiments.sweep.on_ray import has_gpus, run_on_ray

        works = [_work(job, folder, how) for job in jobs]
        run_on_ray(works, 1 if timed else how.at_once or 1, stop, report, gpu=how.device != "cpu" and has_gpus())
    else:
        devices = devices_for(jobs, how.at_once, how.gpus, how.device)[: 1 if timed else len(jobs)]
        log.info("%d runs, %d at a time on %s", len(jobs), len(devices), ", ".join(dict.fromkeys(devices)))
        works = [_work(job, folder, how, runs_at_once=len(devices)) for job in jobs]
        run_local(works, devices, stop, report, fresh=timed)


def _work(job: Job, folder: Path, how: How, runs_at_once: int | None = None) -> Work:
    """A job as a worker gets it. Several runs on this machine share its cores."""
    config = job.config(folder, device=how.device)
    options = config.to_dict()
    threads = None
    if runs_at_once:
        share = max(1, (os.cpu_count() or 1) // runs_at_once)
        options["workers"] = options["workers"] or (share if runs_at_once > 1 else 0)
        if runs_at_once > 1 and "OMP_NUM_THREADS" not in os.environ:
            threads = share
    return Work(job.name, options, str(log_file(folder, job.name)), how.keep, threads=threads)
