"""Progress: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

log = logging.getLogger("tasso")
LINE_SECONDS = 10.0

Advance = Callable[[int, str], None]
_open: list[Progress] = []  # the bars on the screen, if any


@contextlib.contextmanager
def progress(description: str, total: int, done: int = 0) -> Iterator[Advance]:
    """Yields advance(count, note): `count` more are done; the note is shown beside it. One may be within another."""
    if not log.isEnabledFor(logging.INFO):
        yield lambda count, note: None
    elif sys.stderr.isatty():
        yield from _bar(description, total, done)
    else:
        yield from _lines(description, total, done)


def _bar(description: str, total: int, done: int) -> Iterator[Advance]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield from _lines(description, total, done)
        return
    columns = (
        TextColumn("{task.description:<26}", markup=False), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )  # fmt: skip
    with contextlib.ExitStack() as closing:
        if not _open:
            _open.append(closing.enter_context(Progress(*columns, console=Console(stderr=True), transient=True)))
            closing.callback(_open.pop)
        bars = _open[-1]  # a bar within another is a further line
        task = bars.add_task(description, total=total, completed=done, note="")
        closing.callback(bars.remove_task, task)
        yield lambda count, note: bars.update(task, advance=count, note=note)


def _lines(description: str, total: int, done: int) -> Iterator[Advance]:
    started = last = time.monotonic()
    before = done

    def advance(count: int, note: str) -> None:
        nonlocal done, last
        done += count
        now = time.monotonic()
        if now - last >= LINE_SECONDS:
            last = now
            left = duration((now - started) / max(done - before, 1) * (total - done))
            log.info("%s: %d/%d, %s left%s", description, done, total, left, f", {note}" if note else "")

    yield advance


def duration(seconds: float, exact: bool = False) -> str:
    """`2 h 05 min`, or `3 min` (exact: `3 min 11 s`), or `20 s`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if exact and seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
