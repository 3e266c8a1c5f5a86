"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Put off the ``KeyboardInterrupt`` of a Ctrl-C until the block has ended.

    A step that is cut off half-way would leave the scheduler with half of its accounts. A second
    Ctrl-C is not put off, should the block never end. Does nothing in threads other than the main
    one, which Ctrl-C does not interrupt, or where somebody handles Ctrl-C in a way of their own.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    was_interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal was_interrupted
        if was_interrupted:
            signal.default_int_handler(number, frame)
        was_interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if was_interrupted:
        raise KeyboardInterrupt
