"""Runs on a Slurm cluster, through submitit. All nodes see the run folders.

Each run has two small files beside those of submitit: NAME.job, the id of its job, by which a sweep finds the jobs of
one that was killed; and NAME.outcome, how the job ended. Whether a job is still there is asked of Slurm (squeue).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasso.errors import ConfigError, install
from tasso.experiments.sweep.work import Outcome, Work, interrupt, perform, when_saved
from tasso.files import parse_json, parse_yaml, read_text, write_text

log = logging.getLogger("tasso")

ATTEMPTS = 3  # of a run whose job ends too early and has saved nothing
POLL_SECONDS = 5.0  # between two looks at the files of outcomes
ASK_SECONDS = 20.0  # between two questions to Slurm
SETTLE_SECONDS = 15.0  # a file of an outcome may be seen so much later than the end of its job
RETRY_SECONDS = 60.0  # after a submission that Slurm refused, or a run whose folder was locked
BUSY_SECONDS = 600.0  # how long a run waits for a locked folder
COMMAND_SECONDS = 60.0
FULL = 2**20  # a disk with less room than this is full
STOPPED = 143  # exit code of a job that was asked to end: 128 + SIGTERM

ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
ENDED |= {"REVOKED", "TIMEOUT"}
BLAMELESS = {"BOOT_FAIL", "CANCELLED", "NODE_FAIL", "PREEMPTED", "REVOKED"}  # not because of what ran in it
USUAL = {"None", "Priority", "Resources", "JobArrayTaskLimit", "Cleaning", "BeginTime"}  # reasons to wait

# Slurm needs a time limit; before the time is up, the run is saved and its job queued again.
DEFAULTS: dict[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 4}
ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node")
NUMBERS = {*DEFAULTS, *ONE_PROCESS, "gpus_per_node", "array_parallelism", "signal_delay_s"}
LISTS = {"setup", "teardown", "srun_args"}
MAPPINGS = {"additional_parameters"}
FLAGS = {"true": True, "false": False}


class Submission:
    """One run as a job does it."""

    def __init__(self, work: Work, outcome: Path) -> None:
        self.work, self.outcome = work, outcome

    def __call__(self) -> None:
        """Learn the run. SIGTERM, and the signal that comes before the time is up, save its state and end the job."""
        import submitit

        environment = submitit.JobEnvironment()
        warned = []

        def warn(number: int, frame: object) -> None:
            warned.append(number)
            signal.raise_signal(signal.SIGTERM)

        signal.signal(signal.SIGTERM, interrupt)
        signal.signal(getattr(signal, f"SIG{environment.USR_SIG}"), warn)
        before = when_saved(self.work)
        outcome = perform(self.work)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
        write_text(self.outcome, json.dumps({**asdict(outcome), "job": environment.job_id}))
        if outcome.status == "stopped":
            if warned and when_saved(self.work) != before:  # else it would begin again and again
                subprocess.run(["scontrol", "requeue", environment.job_id], timeout=COMMAND_SECONDS, check=False)
            sys.exit(STOPPED)


def run_on_slurm(
    works: Sequence[Work],
    folder: Path,
    at_once: int | None,
    stop: threading.Event,
    report: Callable[[Outcome], None],
    parameters: Mapping[str, Any],
) -> None:
    """Run works as jobs of one Slurm array.

    Args:
        folder: where submitit keeps its files.
        at_once: jobs that may run at the same time; None: as many as Slurm allows.
        parameters: submitit's own (`slurm_partition`, `gpus_per_node`, `timeout_min`, …).
    """
    jobs = _Jobs(works, folder, at_once, report, parameters)
    try:
        jobs.begin()
        while jobs.unfinished and not stop.wait(POLL_SECONDS):
            jobs.look()
    finally:
        jobs.cancel()
    for name in jobs.unfinished:
        report(Outcome(name, "stopped"))


class _Jobs:
    """The jobs of a sweep, and the runs that wait to be submitted."""

    def __init__(
        self,
        works: Sequence[Work],
        folder: Path,
        at_once: int | None,
        report: Callable[[Outcome], None],
        parameters: Mapping[str, Any],
    ) -> None:
        self.works = {work.name: work for work in works}
        self.folder, self.at_once, self.report = folder, at_once, report
        self.executor = _executor(folder, at_once, {"name": f"tasso-{folder.parents[1].name}", **parameters})
        self.ids: dict[str, str] = {}  # jobs in Slurm's hands, by the name of the run
        self.due = dict.fromkeys(self.works, 0.0)  # runs without a job: when they may be submitted
        self.gone: dict[str, float] = {}  # jobs that Slurm no longer has: since when
        self.saved = {name: when_saved(work) for name, work in self.works.items()}
        self.attempts: Counter[str] = Counter()
        self.busy_since: dict[str, float] = {}
        self.asked, self.states, self.told = 0.0, dict[str, str](), set[str]()

    @property
    def unfinished(self) -> list[str]:
        return [*self.ids, *self.due]

    def begin(self) -> None:
        """Take over jobs of a sweep that was killed, and submit the other runs. An error if Slurm takes none."""
        for name in self.works:
            try:
                job = read_text(self._file(name, "job")).strip()
            except (OSError, UnicodeDecodeError):
                continue
            if self._alive(job):
                log.info("%s: is job %s already, which is waited for", name, job)
                self.ids[name] = job
                del self.due[name]
        if reason := self._submit_due():
            given = " ".join(f"{key}={value}" for key, value in self.executor._executor.parameters.items())
            raise ConfigError(f"engine: slurm: {reason}\nSubmitted with {given}; --slurm KEY=VALUE changes these")

    def look(self) -> None:
        """Report runs that have ended, and submit again what has not finished."""
        for name, job in list(self.ids.items()):
            outcome = self._outcome(name, job)
            if outcome is not None and outcome.status in ("finished", "failed"):
                self._end(name, outcome)
            elif self._alive(job):
                self.gone.pop(name, None)
            elif outcome or time.monotonic() - self.gone.setdefault(name, time.monotonic()) >= SETTLE_SECONDS:
                self._came_back(name, job, outcome)
        if reason := self._submit_due():
            log.warning("engine: slurm: %s; tried again in %d seconds", reason, RETRY_SECONDS)

    def cancel(self) -> None:
        """To a run this is like Ctrl-C: it saves its state."""
        if self.ids and _slurm("scancel", *self.ids.values()) is None:
            log.warning("engine: slurm: jobs may run on: scancel %s", " ".join(self.ids.values()))

    def _end(self, name: str, outcome: Outcome) -> None:
        del self.ids[name]
        self.report(outcome)

    def _came_back(self, name: str, job: str, outcome: Outcome | None) -> None:
        """Its job has ended before the run: it goes on in another one, unless several have saved nothing."""
        self.gone.pop(name, None)
        state, now = self.states.get(job, "forgotten by Slurm"), time.monotonic()
        before, self.saved[name] = self.saved[name], when_saved(self.works[name])
        if before != self.saved[name]:
            self.attempts[name] = 0
        elif outcome is not None and outcome.status == "busy":
            if now - self.busy_since.setdefault(name, now) > BUSY_SECONDS:
                return self._end(name, Outcome(name, "failed", outcome.error))
            self.due[name] = now + RETRY_SECONDS
        elif state not in BLAMELESS:
            self.attempts[name] += 1
        if self.attempts[name] >= ATTEMPTS:
            full = f"; no room is left on the disk of {self.folder}" if _is_full(self.folder) else ""
            error = (
                f"its job ended {ATTEMPTS} times and had saved nothing (job {job}: {state}{full}); see {self.folder}"
            )
            return self._end(name, Outcome(name, "failed", error))
        log.warning("%s: job %s has ended (%s); the run goes on from its saved state", name, job, state)
        del self.ids[name]
        self.due.setdefault(name, now)

    def _submit_due(self) -> str:
        """Submit runs whose time has come, within the limit. Returns why Slurm did not take them, or nothing."""
        names = [name for name, when in self.due.items() if when <= time.monotonic()]
        if self.at_once and self.ids:  # a new array would have a limit of its own
            names = names[: max(0, self.at_once - len(self.ids))]
        if not names:
            return ""
        try:
            for name in names:
                self._file(name, "outcome").unlink(missing_ok=True)
            with self.executor.batch():
                jobs = [self.executor.submit(Submission(self.works[n], self._file(n, "outcome"))) for n in names]
        except (RuntimeError, OSError) as error:  # submitit raises what sbatch says
            self.due.update(dict.fromkeys(names, time.monotonic() + RETRY_SECONDS))
            return str(error).strip() or type(error).__name__
        for name, job in zip(names, jobs, strict=True):
            self.ids[name] = job.job_id
            del self.due[name]
            try:
                write_text(self._file(name, "job"), job.job_id)
            except OSError as error:
                log.warning("%s: the id of its job, %s, was not written: %s", name, job.job_id, error.strerror)
        self.asked = 0.0  # what Slurm said before does not have them
        log.info("submitted to Slurm: %s", ", ".join(job.job_id for job in jobs))
        return ""

    def _alive(self, job: str) -> bool:
        """Has Slurm this job, and has it not ended? While Slurm does not answer, nothing has changed."""
        if not self.asked or time.monotonic() - self.asked >= ASK_SECONDS:
            # Of all jobs, those whose script lies in this folder: numbers may be given again.
            said = _slurm("squeue", f"--user={os.getuid()}", "-h", "--array", "--states=all", "--format=%i|%T|%r|%o")
            if said is None:
                return True
            self.asked = time.monotonic()
            rows = [line.split("|", 3) for line in said.splitlines() if line.count("|") >= 3]
            rows = [row for row in rows if Path(row[3]).parent == self.folder]
            self.states = {name: state for name, state, *_ in rows}
            for name, state, reason, _ in rows:
                if state == "PENDING" and reason not in USUAL | self.told:  # perhaps it will never start
                    self.told.add(reason)
                    log.warning("engine: slurm: job %s waits, and Slurm's reason is %s", name, reason)
        return job in self.states and self.states[job] not in ENDED

    def _outcome(self, name: str, job: str) -> Outcome | None:
        """What this job has written about its end."""
        try:
            values = parse_json(read_text(self._file(name, "outcome")))
            if values.pop("job") == job:
                return Outcome(**{**values, "name": name})
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            pass
        return None

    def _file(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"


def _slurm(command: str, *args: str) -> str | None:
    """What a command of Slurm prints; None if it fails, which is logged."""
    try:
        done = subprocess.run([command, *args], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        log.warning("engine: slurm: %s does not work at present: %s", command, said)
        return None
    return done.stdout


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL
    except OSError:
        return False


def _executor(folder: Path, at_once: int | None, parameters: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError:
        raise ConfigError(f"engine: submitit is not installed: {install('slurm')}") from None
    for key in (*ONE_PROCESS, *(f"slurm_{key}" for key in ONE_PROCESS)):
        if parameters.get(key, 1) != 1:
            raise ConfigError(f"engine: slurm: {key}: a run of a sweep is one process, so it must be 1")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
        limits = {"slurm_array_parallelism": at_once} if at_once else {}
        executor.update_parameters(**{**DEFAULTS, **limits, **parameters})
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"engine: slurm: {error}") from None
    return executor


def parse_slurm(args: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE …` as parameters of submitit. A value is text, as Slurm has lists and times of its own (`low,high`,
    `n[1-3]`, `1:30:00`, `007`), a number where submitit needs one, and YAML in brackets for its lists and mappings."""
    found: dict[str, Any] = {}
    for arg in args:
        key, sign, text = arg.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key or not text:
            raise ConfigError(f"slurm: expected KEY=VALUE, not {arg!r}")
        if key in found:
            raise ConfigError(f"slurm: {key} is given twice; keep one of them")
        found[key] = _parameter(key, text)
    return found


def _parameter(key: str, text: str) -> Any:
    short = key.removeprefix("slurm_")
    if short in LISTS | MAPPINGS and text[0] in "[{":
        try:
            value = parse_yaml(text)
        except ValueError:
            raise ConfigError(f"slurm: {key}: {text!r} cannot be parsed as YAML") from None
        if isinstance(value, list if short in LISTS else dict):
            return value
    if short in MAPPINGS:
        raise ConfigError(f"slurm: {key}: expected a mapping in braces, such as {{KEY: VALUE}}, not {text!r}")
    if short in LISTS:
        return [text]
    if text[0] in "[{":
        raise ConfigError(
            f"slurm: {key}: expected one value without brackets, not {text!r}; lists are Slurm's own: a,b"
        )
    if short == "mem_gb" or (short in NUMBERS and key != "slurm_gpus_per_node"):
        try:
            return float(text) if short == "mem_gb" else int(text)
        except ValueError:
            kind = "number" if short == "mem_gb" else "whole number"
            raise ConfigError(f"slurm: {key}: expected one {kind}, not {text!r}") from None
    return FLAGS.get(text.lower(), text)
