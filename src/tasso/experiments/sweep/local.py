"""Runs on this machine, in worker processes. A worker that dies loses nothing: its run is resumed."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from tasso.experiments.sweep.work import Outcome, Work, interrupt, perform

log = logging.getLogger("tasso")

ATTEMPTS = 3  # of a run whose worker dies; it is resumed each time
BUSY_SECONDS = 60.0  # how long a run waits for a locked folder, e.g. of a worker whose sweep was killed
JOIN_SECONDS = 30.0  # for an idle worker to exit
POLL_SECONDS = 0.5  # between two looks at `stop`

Report = Callable[[Outcome], None]


def run_local(
    works: Sequence[Work], devices: Sequence[str], stop: threading.Event, report: Report, fresh: bool = False
) -> None:
    """Run works, one at a time on each of `devices` (which may name a device several times).

    A worker process does several runs, since starting one is slow; with `fresh` it does only one. When `stop` is set,
    runs save their state and end.
    """
    pool = _Pool(works, devices, stop, report, fresh)
    try:
        pool.run()
    finally:
        pool.shut_down()


class Child:
    """A child process and the connection to it."""

    def __init__(self, main: Callable[..., None], *args: Any) -> None:
        """The process calls `main(connection, *args)`."""
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.connection, other = context.Pipe()
        self.process = context.Process(target=main, args=(other, *args), daemon=True)
        self.process.start()
        other.close()

    def receive(self) -> Any:
        """What it sends next, or None if it died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> str:
        """Wait until the process has exited, or kill it if it does not; returns how it ended."""
        self.connection.close()
        self.process.join(JOIN_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        return f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with {code}"


class _Worker(Child):
    """Does one run after the other."""

    def __init__(self) -> None:
        super().__init__(worker_main)
        self.work: Work | None = None

    def begin(self, work: Work) -> None:
        self.work = work
        self.connection.send(work)


class _Pool:
    """The workers and what is left to do."""

    def __init__(
        self, works: Sequence[Work], devices: Sequence[str], stop: threading.Event, report: Report, fresh: bool
    ) -> None:
        self.queue = deque(works)
        self.devices = list(devices)
        self.stop, self.report, self.fresh = stop, report, fresh
        self.workers: dict[int, _Worker] = {}  # by slot in `devices`
        self.deaths: Counter[str] = Counter()
        self.waiting: dict[str, tuple[float, float]] = {}  # name of a busy run: since when, when to try again
        self.terminating = False  # the workers have been asked to stop

    def run(self) -> None:
        while self.queue or self._busy():
            if self.stop.is_set():
                self.queue.clear()
                self._terminate_all()
            self._assign()
            busy = self._busy()
            if not busy:  # all remaining runs wait for a locked folder
                self.stop.wait(POLL_SECONDS)
                continue
            ready = wait([worker.connection for worker in busy.values()], POLL_SECONDS)
            for slot, worker in busy.items():
                if worker.connection in ready:
                    self._collect(slot, worker)

    def _busy(self) -> dict[int, _Worker]:
        return {slot: worker for slot, worker in self.workers.items() if worker.work}

    def _assign(self) -> None:
        for slot, device in enumerate(self.devices):
            worker = self.workers.get(slot)
            if worker and worker.work:
                continue
            work = self._next()
            if work is None:
                return
            if worker is None:
                worker = self.workers[slot] = _Worker()
            try:
                worker.begin(replace(work, options={**work.options, "device": device}))
            except OSError:  # it died while idle; no run is lost
                self.workers.pop(slot).end()
                self.queue.appendleft(work)

    def _next(self) -> Work | None:
        """The next run that does not wait for a locked folder."""
        for _ in range(len(self.queue)):
            work = self.queue.popleft()
            if time.monotonic() >= self.waiting.get(work.name, (0.0, 0.0))[1]:
                return work
            self.queue.append(work)
        return None

    def _collect(self, slot: int, worker: _Worker) -> None:
        work = worker.work
        outcome: Outcome | None = worker.receive()
        assert work is not None
        worker.work = None
        if outcome is None:
            outcome = self._after_death(work, self.workers.pop(slot).end())
        elif outcome.status == "stopped":  # by us, or by a signal to this process alone
            outcome = self._after_death(work, "was asked to stop")
        elif outcome.unexpected or self.fresh:
            self.workers.pop(slot).end()
        if outcome is not None and outcome.status == "busy":
            outcome = self._after_busy(work, outcome)
        if outcome is not None:
            self.report(outcome)

    def _after_death(self, work: Work, how: str) -> Outcome | None:
        """Its process did not finish the run: resume it in this or another one, at most ATTEMPTS times."""
        if self.stop.is_set():
            return Outcome(work.name, "stopped")
        self.deaths[work.name] += 1
        if self.deaths[work.name] < ATTEMPTS:
            log.warning("%s: its process %s; it goes on from its saved state", work.name, how)
            self.queue.append(work)
            return None
        return Outcome(work.name, "failed", f"its process {how}, {ATTEMPTS} times in a row")

    def _after_busy(self, work: Work, outcome: Outcome) -> Outcome | None:
        if self.stop.is_set():
            return Outcome(work.name, "stopped")
        now = time.monotonic()
        since, _ = self.waiting.get(work.name, (now, now))
        if now - since > BUSY_SECONDS:
            return Outcome(work.name, "failed", outcome.error)
        self.waiting[work.name] = (since, now + 2 * POLL_SECONDS)
        self.queue.append(work)
        return None

    def _terminate_all(self) -> None:
        if not self.terminating:
            self.terminating = True
            for worker in self._busy().values():
                worker.process.terminate()

    def shut_down(self) -> None:
        """Idle workers exit when their connection is closed; busy ones are killed."""
        for worker in self.workers.values():
            worker.connection.close()
            if worker.work:
                worker.process.kill()
        for worker in self.workers.values():
            worker.end()
        self.workers.clear()


# -- in the child process ----------------------------------------------------------------------------------------


def worker_main(connection: Connection) -> None:
    """Run what comes through the connection until it is closed."""
    with bound_to_parent():
        while True:
            outcome = perform(connection.recv())
            connection.send(outcome)
            if outcome.unexpected:
                return


@contextlib.contextmanager
def bound_to_parent() -> Iterator[None]:
    """What a child does ends quietly if the parent asks for it, closes the connection or is killed."""
    faulthandler.enable()
    # Ctrl-C and the end of a terminal reach every process of it; the parent decides, and asks by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        yield
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending


def _stop_with_parent() -> None:
    """A sweep that was killed cannot stop its workers, so they stop themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
