"""SIGINT and SIGTERM: the current step is finished and the state is saved before the run ends."""

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
    """An event that the first SIGINT or SIGTERM sets. A second signal has its usual effect at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield event
        return

    def handle(number: int, _: object) -> None:
        event.set()
        log.info("stopping after this step; a second signal (Ctrl-C) stops at once")
        signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
