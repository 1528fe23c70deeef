"""Ctrl-C and a polite kill: the step at hand is finished and its state is saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state is saved."""


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and a polite kill set, so that a step is finished before its state is saved."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield event
        return

    def ask(number: int, _: object) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)])  # who asks twice does not want to wait

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
