"""How a command ends: which exit code, and what is said. The only place that turns errors into words.

0: done. 1: done, and what was asked is not so (a budget broken, an image skipped, a run of a sweep failed).
2: something the user gave cannot work. 70: a fault of tasso itself. 130: stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn

from tasso.errors import TassoError

USER, FAULT, STOPPED, BROKEN_PIPE = 2, 70, 130, 141


@contextlib.contextmanager
def told(debug: bool = False) -> Iterator[None]:
    """Say what ended the command, and end it; with `debug`, show where it happened, too."""
    try:
        yield
        sys.stdout.flush()  # here a reader that has gone is noticed, not when Python ends
    except TassoError as error:
        _end(str(error), USER, debug)
    except KeyboardInterrupt as stop:
        _end(str(stop) or "stopped; the same command goes on from what is saved", STOPPED, debug)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():  # whoever did has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        _end(about_file(error), USER, debug)
    except Exception as error:
        if is_out_of_memory(error):
            _end("out of memory; try a smaller --batch-size or --eval-batch-size", USER, debug)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        _end(f"{reason}. This is a fault in tasso; --debug shows where it happened", FAULT, debug)


def _nobody_reads() -> bool:
    """Is it our output that has no reader? There are other pipes: to trackers, to workers."""
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)  # errors are told without being asked for
    except (OSError, ValueError):  # not even a file
        return True
    return bool(output.poll(0))


def about_file(error: OSError) -> str:
    """A failure of the disk, with the file if the system told which."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def is_out_of_memory(error: Exception) -> bool:
    """Of the machine, or of the GPU: torch has a kind of its own for the one, and words for the other."""
    words = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED")
    of_torch = type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)


def _end(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(f"tasso: {message}", file=sys.stderr)
    sys.exit(code)
