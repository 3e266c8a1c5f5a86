"""Who has waited for a start longer than requests may (``max_queue_time``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chairlift.inputs import CoreRequest


class QueueDeadlines:
    """Remembers when requests arrived, in that order, until they are overdue.

    Args:
        max_queue_time_s: How long a request may wait, in seconds; 0: for ever.
    """

    def __init__(self, max_queue_time_s: float) -> None:
        self._max_queue_time_s = max_queue_time_s
        self._arrivals: deque[tuple[float, str]] = deque()

    def add(self, request: CoreRequest) -> None:
        """A request has arrived."""
        if self._max_queue_time_s > 0.0:
            self._arrivals.append((request.arrival_time_s, request.request_id))

    def overdue(self, now_s: float, has_waited: Callable[[str], bool]) -> list[str]:
        """Ids of requests that waited too long and have not started, each once.

        Args:
            has_waited: Says of an id whether the request waits and has never run.
        """
        found = []
        while self._arrivals and now_s - self._arrivals[0][0] > self._max_queue_time_s:
            _, request_id = self._arrivals.popleft()
            if has_waited(request_id):
                found.append(request_id)
        return found
