"""Ctrl-C, SIGTERM and SIGHUP: the current step is finished and the state is saved before the run ends."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator

log = logging.getLogger("tasso")


class Stopped(KeyboardInterrupt):
    """The run was stopped by a signal, and its state is saved."""


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets. A second SIGINT has its usual effect at once.

    More of the others have none: schedulers and terminals send them several times. An ignored SIGHUP, as under nohup,
    stays ignored.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield event
        return

    def handle(number: int, _: object) -> None:
        if not event.is_set():
            log.info("stopping after this step; a second Ctrl-C stops at once")
        event.set()
        if number == signal.SIGINT:
            signal.signal(number, previous[signal.SIGINT])

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    if (hangup := getattr(signal, "SIGHUP", None)) and signal.getsignal(hangup) != signal.SIG_IGN:
        previous[hangup] = signal.signal(hangup, handle)
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
