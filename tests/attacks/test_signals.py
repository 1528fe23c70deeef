"""Signals that end a run: from schedulers, terminals that close, and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tasso.training.stopping import stop_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_several_times_stops_once(number: int) -> None:
    signal.signal(number, signal.default_int_handler)  # else it would end the tests
    with stop_signals() as stop:
        for _ in range(3):
            signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) == signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    with stop_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
