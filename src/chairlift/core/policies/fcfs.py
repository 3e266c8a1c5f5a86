"""First come, first served."""

from __future__ import annotations

from collections.abc import Collection

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import Outlook
from chairlift.core.policies.waiting_line import Key, WaitingLine
from chairlift.core.request import Request


class FcfsPolicy:
    """Requests run in order of arrival; the latest arrival gives way.

    A preempted request came before all that wait, so its place is before them by itself.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._line = WaitingLine(self._key)

    def _key(self, request: Request) -> Key:
        return (0.0, request.arrival_index)

    reorders = False

    def __len__(self) -> int:
        return len(self._line)

    def arrived(self, request: Request) -> None:
        """Nothing to remember."""

    def add(self, request: Request) -> None:
        """At the place that its arrival gives it."""
        self._line.add(request)

    def remove(self, request: Request) -> None:
        """From wherever it is."""
        self._line.remove(request)

    def next(
        self, now_s: float, passed: Collection[Request], full_tenants: Collection[str]
    ) -> Request | None:
        """The earliest arrival."""
        return self._line.first(passed, full_tenants)

    def order_running(self, running: list[Request]) -> None:
        """By arrival; nearly always sorted already, which costs one pass."""
        running.sort(key=lambda request: self._key(request))

    def gives_way(self, waiting: Request, running: Request) -> bool:
        """Never: who runs, came first."""
        return False

    def served(self, request: Request, num_prefill_tokens: int, num_decode_tokens: int) -> None:
        """Nothing to remember."""

    def outlook(self, now_s: float, mean_output_tokens: float) -> Outlook | None:
        """At the end of the line."""
        return None

    def left(self, request: Request) -> None:
        """Nothing to remember."""
