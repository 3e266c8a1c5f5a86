"""Times the parts of a start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PhaseCallback = Callable[[str, float], None]


class PhaseTimer:
    """Collects names and seconds of parts, and tells somebody of each as it ends."""

    def __init__(self, on_phase: PhaseCallback | None = None) -> None:
        self._on_phase = on_phase
        self._phases: list[tuple[str, float]] = []

    @property
    def phases(self) -> tuple[tuple[str, float], ...]:
        """Name and seconds of the parts so far, in order."""
        return tuple(self._phases)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block; one that raises is not counted."""
        started_s = time.monotonic()
        yield
        seconds = time.monotonic() - started_s
        self._phases.append((name, seconds))
        if self._on_phase is not None:
            self._on_phase(name, seconds)
