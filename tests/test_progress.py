"""Progress where there is no terminal: lines that say how far it is and how long it will take."""

from __future__ import annotations

import logging
import re

import pytest

from tasso.progress import _open as bars_on_screen
from tasso.progress import duration, progress


def test_lines_say_how_long_it_will_take(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.progress.LINE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger="tasso")
    with progress("1/2 pets", 10, done=4) as advance:
        advance(3, "ce 1.2")
        advance(3, "")
    assert re.fullmatch(r"1/2 pets: 7/10, \d+ s left, ce 1.2", caplog.messages[0])
    assert caplog.messages[1] == "1/2 pets: 10/10, 0 s left"


def test_durations_read_well() -> None:
    assert [duration(s) for s in (20, 89, 600, 3599, 7500)] == ["20 s", "89 s", "10 min", "1 h 00 min", "2 h 05 min"]
    assert [duration(s, exact=True) for s in (20, 251, 7500)] == ["20 s", "4 min 11 s", "2 h 05 min"]


def test_a_bar_within_another_is_a_further_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="tasso")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress("evaluating", 10) as outer:
        [bars] = bars_on_screen
        with progress("reading", 5) as inner:
            inner(5, "")
            outer(1, "")
            assert [(bar.description, bar.completed) for bar in bars.tasks] == [("evaluating", 1), ("reading", 5)]
        assert [bar.description for bar in bars.tasks] == ["evaluating"]
    assert not bars_on_screen
