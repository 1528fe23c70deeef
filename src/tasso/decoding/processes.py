"""Processes that decode images. Threads would wait for each other: a third of the work on a small image is Python's.

They are started when there is work for them, stay until `end_idle` or the end of this process, and are plain programs:
neither forks of this process, which may use CUDA and have threads, nor copies that would run the user's script again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from tasso.decoding import worker
from tasso.decoding.worker import Item, Reply, View, view_all
from tasso.errors import DataError

log = logging.getLogger("tasso")

STUCK_SECONDS = 300.0  # a process that takes longer for its part of a batch is killed
FAILURES = 3  # after so many, no more processes are started

_idle: deque[DecodingProcess] = deque()
_failures: list[Exception] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # they are the parent's


class DecodingProcess:
    """One of the processes. One thread at a time may use it."""

    def __init__(self) -> None:
        # Found where this process found them; a module in the user's working directory is not.
        places = [place for place in sys.path if place and isinstance(place, str)]  # Python ignores others, too
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0 if os.name == "posix" else None,  # Ctrl-C in a terminal is for its parent alone
        )
        self.end = weakref.finalize(self, _end, self.process, os.getpid())

    def view_all(self, view: View, items: Sequence[Item]) -> Reply:
        """As `view_all`, in that process."""
        assert self.process.stdin
        assert self.process.stdout
        patience = threading.Timer(STUCK_SECONDS, self.process.kill)  # then the pipes are closed
        patience.daemon = True
        patience.start()
        try:
            pickle.dump((view, items), self.process.stdin, pickle.HIGHEST_PROTOCOL)
            self.process.stdin.flush()
            return cast(Reply, pickle.load(self.process.stdout))
        finally:
            patience.cancel()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.communicate()


def end_idle() -> None:
    """End the processes that are not used at the moment."""
    with contextlib.suppress(IndexError):  # there are no more
        while True:
            _idle.pop().end()


def view_all_elsewhere(view: View, items: Sequence[Item]) -> list[Any]:
    """As `view_all`, in another process; in this one if there can be no other. Several threads may call it."""
    if len(_failures) >= FAILURES:
        return view_all(view, items)
    process = None
    try:
        try:
            process = _idle.pop()
        except IndexError:
            process = DecodingProcess()
        result, warned = process.view_all(view, items)
    except Exception as error:  # it could not be started, was killed, or something else writes to its output
        _failures.append(error)
        log.warning("a process that decodes images has died or did not answer; its images are decoded in this one")
        if process:
            process.end()
        return view_all(view, items)
    _idle.append(process)
    for message, category in warned:
        warnings.warn(message, category, stacklevel=2)
    if isinstance(result, Exception):
        raise result
    # This process may be able to read more, with plugins and settings of Pillow that others do not know.
    return [
        view_all(view, [item])[0] if isinstance(made, DataError) else made
        for item, made in zip(items, result, strict=True)
    ]
