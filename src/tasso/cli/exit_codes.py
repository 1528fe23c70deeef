"""How a command ends: its exit code and its message. The only place that turns errors into text.

0: done. 1: done, with a negative result (a budget broken, an image skipped, a run of a sweep failed).
2: something the user gave cannot work. 70: a bug in tasso. 130: stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tasso.errors import LESS_MEMORY, TassoError, printable, shortened

MOST = 10_000  # characters of a message
USER, BUG, STOPPED, BROKEN_PIPE = 2, 70, 130, 141


@contextlib.contextmanager
def exit_on_error(debug: bool = False) -> Iterator[None]:
    """Print what ended the command and exit; with `debug`, print the traceback, too."""
    try:
        yield
        sys.stdout.flush()  # a closed pipe is noticed here, not when Python exits
    except TassoError as error:
        _exit(str(error), USER, debug)
    except KeyboardInterrupt as stop:
        _exit(str(stop) or "stopped; the same command goes on from what is saved", STOPPED, debug)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _output_is_closed():  # such as `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        _exit(describe_os_error(error), USER, debug)
    except Exception as error:
        if is_out_of_memory(error):
            _exit(f"out of memory. {LESS_MEMORY}", USER, debug)
        if "No space left on device" in str(error) or "failed writing file" in str(error):  # of safetensors, torch
            _exit(f"a file cannot be written, probably the disk is full: {error}", USER, debug)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if place := _place_outside(error):
            _exit(f"{place}: {reason}. That file is not part of tasso; --debug shows how it was called", USER, debug)
        _exit(f"{reason}. This is a fault in tasso; --debug shows where it happened", BUG, debug)


def _output_is_closed() -> bool:
    """Is it standard output that has no reader? There are other pipes: to trackers, to workers."""
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)  # errors are reported without being asked for
    except (OSError, ValueError):  # not even a file
        return True
    return bool(output.poll(0))


def _place_outside(error: Exception) -> str | None:
    """File and line of a user's own code, such as a method in `package.module:Class`, if the error was raised by it or
    by a library that it called."""
    here = Path(__file__).parents[1]
    libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if here in file.parents:
            return None
        if file.is_file() and not libraries & set(file.parents):
            return f"{file}, line {frame.lineno}"
    return None


def describe_os_error(error: OSError) -> str:
    """The reason, with the file if the system names one."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def is_out_of_memory(error: Exception) -> bool:
    """On the host or on the GPU: torch has an exception of its own for the one, and messages for the other."""
    messages = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED")
    of_torch = type(error).__name__ == "OutOfMemoryError" or any(message in str(error) for message in messages)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and of_torch)


def _exit(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"tasso: {printable(shortened(message, MOST))}", file=sys.stderr, flush=True)
    sys.exit(code)


def open_standard_streams() -> None:
    """Those that are closed lead nowhere: else the next files would take their numbers, and get what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # it takes the first free number, which may be this one
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
