"""Requests whose prefix is cached first, as long as nobody waits too long for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from chairlift.config import SchedulerConfig
from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.request import Request, RequestStatus

NUM_LOOKED_AT = 32
"""Waiting requests per tenant whose prefix is looked up: the cost of a step stays flat."""


class PrefixPolicy(FcfsPolicy):
    """The longest cached prefix among the first ones that wait goes next.

    Whoever has waited for ``prefix_max_wait_s`` goes before all that have waited less, in order of
    arrival, so a prompt that nobody shares starts too. Preempted requests come before those that
    never ran.

    Args:
        cached_tokens: Leading tokens of a request that the prefix cache has now.
    """

    def __init__(self, config: SchedulerConfig, cached_tokens: Callable[[Request], int]) -> None:
        super().__init__(config)
        self._max_wait_s = config.prefix_max_wait_s
        self._cached_tokens = cached_tokens

    def next(
        self, now_s: float, passed: Collection[Request], full_tenants: Collection[str]
    ) -> Request | None:
        """The one with most cached tokens, or the one that has waited too long."""
        first = self._line.first(passed, full_tenants)
        if first is None or first.status is RequestStatus.PREEMPTED:
            return first
        if now_s - first.core_request.arrival_time_s >= self._max_wait_s:
            return first
        candidates = [
            request
            for request in self._line.head(NUM_LOOKED_AT + len(passed))
            if request not in passed and request.tenant not in full_tenants
        ]
        return max(candidates, key=lambda r: (self._cached_tokens(r), -r.arrival_index))
