"""Ctrl-C during a step."""

from __future__ import annotations

import signal
import threading

import pytest

from chairlift.engine.interrupts import deferred_interrupt


def test_an_interrupt_is_raised_after_the_block() -> None:
    reached_end = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
        reached_end = True
    assert reached_end
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_raised_at_once() -> None:
    reached_end = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached_end = True
    assert not reached_end


def test_an_error_in_the_block_goes_through() -> None:
    with pytest.raises(ValueError, match="x"), deferred_interrupt():
        raise ValueError("x")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone() -> None:
    seen = []

    def run() -> None:
        with deferred_interrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
