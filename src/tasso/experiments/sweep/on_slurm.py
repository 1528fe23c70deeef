"""Runs on a Slurm cluster, through submitit. All nodes see the run folders."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasso.errors import ConfigError, install
from tasso.experiments.sweep.work import Outcome, Work, perform

log = logging.getLogger("tasso")

ATTEMPTS = 3  # of a run whose job dies; it is resumed each time
POLL_SECONDS = 5.0
# Slurm needs a time limit; when the time is up, the job is submitted again and resumes.
DEFAULTS: dict[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 4}


class Submission:
    """One run as submitit wants it. When it is preempted or the time is up, it is submitted again."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self) -> Outcome:
        return perform(self.work)

    def checkpoint(self) -> Any:
        """Called by submitit before the job is ended; the run folder has the latest saved state."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def run_on_slurm(
    works: Sequence[Work],
    folder: Path,
    at_once: int | None,
    stop: threading.Event,
    report: Callable[[Outcome], None],
    parameters: Mapping[str, Any],
    cluster: str | None = None,
) -> None:
    """Run works as jobs of one Slurm array.

    Args:
        folder: where submitit keeps its files.
        at_once: jobs that may run at the same time; None: as many as Slurm allows.
        parameters: submitit's own (`slurm_partition`, `gpus_per_node`, `timeout_min`, …).
        cluster: that of submitit; None: Slurm. `local` starts processes on this machine, for tests.
    """
    executor = _executor(folder, at_once, parameters, cluster)
    deaths: Counter[str] = Counter()
    with executor.batch():
        jobs = {work.name: (work, executor.submit(Submission(work))) for work in works}
    try:
        while jobs and not stop.wait(POLL_SECONDS):
            for name, (work, job) in list(jobs.items()):
                if not job.done():
                    continue
                del jobs[name]
                outcome = _outcome(job, work)
                if outcome is None:
                    deaths[name] += 1
                    if deaths[name] < ATTEMPTS:
                        log.warning("%s: its job died; it goes on from its saved state", name)
                        jobs[name] = (work, executor.submit(Submission(work)))
                        continue
                    outcome = Outcome(name, "failed", f"its job died {ATTEMPTS} times; see {folder}")
                report(outcome)
    finally:
        for _, job in jobs.values():
            job.cancel(check=False)
    for name in jobs:
        report(Outcome(name, "stopped"))


def _executor(folder: Path, at_once: int | None, parameters: Mapping[str, Any], cluster: str | None) -> Any:
    try:
        import submitit
    except ImportError:
        raise ConfigError(f"engine: submitit is not installed: {install('slurm')}") from None
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster or "slurm")
        limits = {"slurm_array_parallelism": at_once} if at_once else {}
        executor.update_parameters(**{**DEFAULTS, **limits, **parameters})
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"engine: slurm: {error}") from None
    return executor


def _outcome(job: Any, work: Work) -> Outcome | None:
    """How the run ended; None if the job died."""
    import submitit

    try:
        outcome: Outcome = job.result()
        return outcome
    except submitit.core.utils.UncompletedJobError:
        return None
    except submitit.core.utils.FailedJobError as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        return Outcome(work.name, "failed", lines[-1].strip() if lines else "submitit: the job failed")
