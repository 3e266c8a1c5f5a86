"""The requests that do not run: whose turn it is, and who is kept back by its tenant's limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import SchedulingPolicy
from chairlift.core.request import Request, RequestStatus
from chairlift.core.tenant_limits import TenantLimits


class Line:
    """The policy's line, with those in front of it that were preempted as often as may be.

    Those need blocks for all they may still want, and whoever went before them could take these
    again and again. Going first, each gets them as soon as enough running requests have ended.

    Attributes:
        num_preempted: Requests in the line that have run before.
    """

    def __init__(
        self, policy: SchedulingPolicy, config: SchedulerConfig, tenant_limits: TenantLimits
    ) -> None:
        self.num_preempted = 0
        self._policy = policy
        self._max_head_passes = config.max_head_passes
        self._tenant_limits = tenant_limits
        self._first: list[Request] = []  # in order of arrival

    def __len__(self) -> int:
        return len(self._policy)

    @property
    def num_new(self) -> int:
        """Requests in the line that have never run."""
        return len(self._policy) - self.num_preempted

    def add(self, request: Request) -> None:
        """A request has arrived, or was preempted."""
        self._policy.add(request)
        if request.status is RequestStatus.PREEMPTED:
            self.num_preempted += 1
            if request.keeps_blocks:
                self._first.append(request)
                self._first.sort(key=lambda r: r.arrival_index)

    def remove(self, request: Request) -> None:
        """A request starts, returns or is cancelled. Its status is still the old one."""
        self._policy.remove(request)
        if request.status is RequestStatus.PREEMPTED:
            self.num_preempted -= 1
            if request.keeps_blocks:
                self._first.remove(request)

    def next(
        self, now_s: float, passed: Collection[Request] = (), running: Iterable[Request] = ()
    ) -> Request | None:
        """Whose turn it is, leaving out those passed and tenants with as many running as may be."""
        full_tenants = self._tenant_limits.full(running)
        for request in self._first:
            if request not in passed and request.tenant not in full_tenants:
                return request
        return self._policy.next(now_s, passed, full_tenants)

    def lets_others_pass(self, request: Request) -> bool:
        """Whether later requests may start before one whose blocks are not there."""
        is_new = request.status is RequestStatus.WAITING
        return is_new and request.num_times_passed < self._max_head_passes

    def oldest_wait_s(self, now_s: float) -> float:
        """How long the one whose turn it is has been here, in seconds."""
        first = self._policy.next(now_s, (), ())
        return 0.0 if first is None else now_s - first.core_request.arrival_time_s
