"""What a worker does: learn one run, log its output, and return how it ended. The results are in its folder."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from tasso.errors import BusyError, TassoError
from tasso.experiments.sweep.execution import Keep

log = logging.getLogger("tasso")

Status = Literal["finished", "failed", "stopped", "busy"]


@dataclass(frozen=True)
class Work:
    """One run, as a worker gets it; plain values only, since it is sent between processes."""

    name: str
    options: dict[str, Any]
    log: str
    keep: Keep = "last"
    # Paths in the options may be relative to the user's working directory.
    directory: str = field(default_factory=os.getcwd)
    # Threads of PyTorch; None: as it decides itself.
    threads: int | None = None
    # Where runs on this machine share decoded images; None: they do not.
    shared: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended. After an `unexpected` error the process should not be used again."""

    name: str
    status: Status
    error: str = ""
    unexpected: bool = False


def perform(work: Work) -> Outcome:
    """Learn one run. Whatever happens is an outcome; what is printed and logged goes to the run's log file."""
    try:
        with written_to(Path(work.log)):
            os.chdir(work.directory)
            log.info("--- %s: process %d begins %s", time.strftime("%Y-%m-%d %H:%M:%S"), os.getpid(), work.name)
            outcome = _learned(work)
            log.info("--- %s %s", outcome.status, outcome.error)
    except OSError as error:  # of the log or the working directory; `_learned` catches those of the run
        return Outcome(work.name, "failed", str(error))
    return outcome


def _learned(work: Work) -> Outcome:
    import torch

    from tasso.config import from_dict
    from tasso.data.images.shared import sharing
    from tasso.methods import import_method
    from tasso.training.learner import learn
    from tasso.training.run_folder import RunFolder

    try:
        if work.threads:
            torch.set_num_threads(work.threads)
        config = from_dict(work.options, work.name)
        import_method(config.method["name"])  # as the process that sent it did
        with sharing(Path(work.shared) if work.shared else None):
            learn(config)
        RunFolder(config.out).keep_checkpoints(work.keep)
        return Outcome(work.name, "finished")
    except BusyError as error:
        return Outcome(work.name, "busy", str(error))
    except TassoError as error:
        return Outcome(work.name, "failed", str(error))
    except KeyboardInterrupt as stop:
        return Outcome(work.name, "stopped", str(stop))
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or ["no message"]
        return Outcome(work.name, "failed", f"{type(error).__name__}: {lines[0]}", unexpected=True)
    finally:
        gc.collect()  # reference cycles may hold a model, and the next run needs its memory
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler of signals: what runs ends as by Ctrl-C, and `perform` returns that it was stopped."""
    raise KeyboardInterrupt("stopped; the same command goes on from what is saved")


def when_saved(work: Work) -> tuple[int, ...]:
    """When something of the run was saved last, in nanoseconds; equal values: nothing since."""
    from tasso.training.run_folder import RunFolder

    folder = RunFolder(Path(work.directory, work.options["out"]))
    times = []
    for path in (folder.state_file, folder.results_file, folder.checkpoints):
        try:
            times.append(path.stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


@contextlib.contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Append everything that this process prints to a file, C libraries included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [(number, os.dup(number)) for number in (1, 2)]
    level, propagates = log.level, log.propagate
    with path.open("a", encoding="utf-8", buffering=1) as file:  # line by line, so that a kill loses none
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(message)s"))
        try:
            for number, _ in saved:
                os.dup2(file.fileno(), number)
            log.addHandler(handler)
            log.propagate = False  # a library may have set up the root logger: everything would appear twice
            log.setLevel(logging.INFO)
            # Not `file`: a library may set up logging meanwhile and keep the stream that it finds.
            out, err = (os.fdopen(number, "w", 1, "utf-8", closefd=False) for number, _ in saved)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                yield
        finally:
            log.removeHandler(handler)
            log.propagate = propagates
            log.setLevel(level)
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)
