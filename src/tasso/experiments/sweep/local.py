"""Runs on this machine: worker processes that learn one run after the other and may die without harm."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from types import FrameType

from tasso.experiments.sweep.work import Outcome, Work, perform

log = logging.getLogger("tasso")

ATTEMPTS = 3  # of a run whose worker dies; it goes on from its saved state each time
BUSY_SECONDS = 60.0  # how long a run waits for another process to leave its folder, e.g. a worker that lost its sweep
LEAVE_SECONDS = 30.0  # a worker that has nothing to do gets to leave
LOOK_SECONDS = 0.5  # how often we look whether someone wants us to stop

Report = Callable[[Outcome], None]


def run_local(
    works: Sequence[Work], devices: Sequence[str], stop: threading.Event, report: Report, fresh: bool = False
) -> None:
    """Carry out works, one at a time on each of `devices` (which may name a device several times).

    A worker process does several runs, since starting one takes long; with `fresh` it does one only. When `stop` is
    set, runs save their state and end.
    """
    crew = _Crew(works, devices, stop, report, fresh)
    try:
        crew.run()
    finally:
        crew.dismiss()


class _Worker:
    """A child process and the line to it."""

    def __init__(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.device = device
        self.line, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True, name=f"tasso-{device}")
        self.process.start()
        other.close()
        self.work: Work | None = None

    def begin(self, work: Work) -> None:
        self.work = work
        self.line.send(work)

    def answer(self) -> Outcome | None:
        """How its run ended, or None if it died over it."""
        try:
            outcome: Outcome = self.line.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def leave(self) -> None:
        """Wait until the process is gone; one that does not go by itself is made to."""
        self.process.join(LEAVE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Crew:
    """The workers and what is left to do."""

    def __init__(
        self, works: Sequence[Work], devices: Sequence[str], stop: threading.Event, report: Report, fresh: bool
    ) -> None:
        self.queue = deque(works)
        self.devices = list(devices)
        self.stop, self.report, self.fresh = stop, report, fresh
        self.workers: dict[int, _Worker] = {}  # by place in `devices`
        self.deaths: Counter[str] = Counter()
        self.waiting: dict[str, tuple[float, float]] = {}  # name of a busy run: since when, when to try again
        self.asked = False  # the workers, to stop

    def run(self) -> None:
        while self.queue or self._busy():
            if self.stop.is_set():
                self.queue.clear()
                self._ask_to_stop()
            self._hand_out()
            busy = self._busy()
            if not busy:  # all that is left waits for another process
                self.stop.wait(LOOK_SECONDS)
                continue
            ready = wait([worker.line for worker in busy.values()], LOOK_SECONDS)
            for place, worker in busy.items():
                if worker.line in ready:
                    self._take_back(place, worker)

    def _busy(self) -> dict[int, _Worker]:
        return {place: worker for place, worker in self.workers.items() if worker.work}

    def _hand_out(self) -> None:
        for place, device in enumerate(self.devices):
            worker = self.workers.get(place)
            if worker and worker.work:
                continue
            work = self._next()
            if work is None:
                return
            if worker is None:
                worker = self.workers[place] = _Worker(device)
            try:
                worker.begin(_on(work, device))
            except OSError:  # it died while it had nothing to do; no run is lost
                self._bury(place)
                self.queue.appendleft(work)

    def _next(self) -> Work | None:
        """The next run that need not wait for another process to leave its folder."""
        for _ in range(len(self.queue)):
            work = self.queue.popleft()
            if time.monotonic() >= self.waiting.get(work.name, (0.0, 0.0))[1]:
                return work
            self.queue.append(work)
        return None

    def _take_back(self, place: int, worker: _Worker) -> None:
        work, outcome = worker.work, worker.answer()
        assert work is not None
        worker.work = None
        if outcome is None:
            code = self._bury(place)
            how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with {code}"
            outcome = self._after_death(work, how)
        elif outcome.status == "stopped":  # by us, or by someone who is polite to this process alone
            outcome = self._after_death(work, "was asked to stop")
        elif outcome.unexpected or self.fresh:
            self._bury(place)
        if outcome is not None and outcome.status == "busy":
            outcome = self._after_busy(work, outcome)
        if outcome is not None:
            self.report(outcome)

    def _after_death(self, work: Work, how: str) -> Outcome | None:
        """Its process did not finish the run: it goes on in this or another one, unless that happens again."""
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
        self.waiting[work.name] = (since, now + 2 * LOOK_SECONDS)
        self.queue.append(work)
        return None

    def _ask_to_stop(self) -> None:
        if not self.asked:
            self.asked = True
            for worker in self._busy().values():
                worker.process.terminate()

    def _bury(self, place: int) -> int | None:
        worker = self.workers.pop(place)
        worker.line.close()
        worker.leave()
        return worker.process.exitcode

    def dismiss(self) -> None:
        """Idle workers leave when their line is closed; whoever still works now is not waited for."""
        for worker in self.workers.values():
            worker.line.close()
            if worker.work:
                worker.process.kill()
        for worker in self.workers.values():
            worker.leave()
        self.workers.clear()


def _on(work: Work, device: str) -> Work:
    return Work(**{**vars(work), "options": {**work.options, "device": device}})


# -- in the child process ----------------------------------------------------------------------------------------


def serve(line: Connection) -> None:
    """Learn what comes along the line until it is closed."""
    faulthandler.enable()
    # Ctrl-C reaches every process of a terminal; the sweep decides, and asks by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    try:
        while True:
            outcome = perform(line.recv())
            line.send(outcome)
            if outcome.unexpected:
                return
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("stopped; the same command goes on from what is saved")


def _stop_when_alone() -> None:
    """A sweep that was killed cannot ask its workers to stop, so they ask themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
