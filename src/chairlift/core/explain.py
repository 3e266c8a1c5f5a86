"""Why a request waits, with numbers, and what has happened to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from chairlift.config import SchedulerConfig
from chairlift.core.kv_cache_manager import KVCacheManager
from chairlift.core.line import Line
from chairlift.core.pacing import Pacing
from chairlift.core.request import Request, RequestStatus
from chairlift.core.request_log import EVENT_FIELDS, Event, FinishedRequest, RequestLog
from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.core.tenant_limits import TenantLimits
from chairlift.outputs import RequestEvent, RequestReport, WaitReason

MAX_POSITIONS = 64
"""Requests at the front of the line whose position is worked out."""

_STATES = {
    RequestStatus.WAITING: "waiting",
    RequestStatus.RUNNING: "running",
    RequestStatus.PREEMPTED: "preempted",
}


class Explainer:
    """Follows the scheduler's decisions and reports on requests when asked.

    Per step it looks at the rows that compute prompts and at the head of the line; all else is
    worked out when somebody asks.

    Args:
        num_reserved: Blocks that must stay available when a request starts.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        line: Line,
        kv_cache: KVCacheManager,
        tenant_limits: TenantLimits,
        pacing: Pacing,
        num_reserved: Callable[[Request], int],
    ) -> None:
        self.log = RequestLog()
        self._config = config
        self._line = line
        self._kv_cache = kv_cache
        self._num_reserved = num_reserved
        self._tenant_limits = tenant_limits
        self._pacing = pacing
        self._budget_left = config.max_num_batched_tokens

    def planned(
        self,
        plan: SchedulerOutput,
        running: Sequence[Request],
        prefilling: Mapping[str, Request],
        budget_left: int,
    ) -> None:
        """A step has been planned, with so many tokens of its budget not handed out."""
        self._budget_left = budget_left
        if prefilling:
            self.log.scheduled(plan.scheduled, prefilling)
        if len(self._line):
            head = self._line.next(self.log.now_s)
            if head is not None:
                reason = self._why_waiting(head, head, running)
                self.log.blocked(head, reason.limit, reason.have, reason.need)

    def reports(
        self,
        requests: Iterable[Request],
        running: Sequence[Request],
        is_wanted: Callable[[str], bool] | None,
    ) -> list[RequestReport]:
        """Report on live requests, then on those that ended lately.

        Args:
            is_wanted: Says of an id whether it is asked for; those get their events too. ``None``:
                all, without events.
        """
        line = self._front()
        positions = {request.request_id: i for i, request in enumerate(line)}
        head = line[0] if line else None
        ended = self.log.finished_requests()
        if is_wanted is None:
            live = [self._report(request, head, running, positions) for request in requests]
            return live + [_finished_report(record) for record in ended]
        reports = []
        for request in requests:
            if is_wanted(request.request_id):
                report = self._report(request, head, running, positions)
                reports.append(_with_events(report, self.log.events_of(request)))
        for record in ended:
            if is_wanted(record.request_id):
                reports.append(_with_events(_finished_report(record), record.events))
        return reports

    def _front(self) -> list[Request]:
        """The first requests in the line, in the policy's order."""
        line: dict[Request, None] = {}
        while len(line) < MAX_POSITIONS:
            request = self._line.next(self.log.now_s, line.keys())
            if request is None:
                break
            line[request] = None
        return list(line)

    def _report(
        self,
        request: Request,
        head: Request | None,
        running: Sequence[Request],
        positions: Mapping[str, int],
    ) -> RequestReport:
        core_request = request.core_request
        waits = request.status is not RequestStatus.RUNNING
        return RequestReport(
            request_id=request.request_id,
            state=_STATES[request.status],
            tenant=request.tenant,
            priority=core_request.priority,
            arrival_s=core_request.arrival_time_s,
            num_prompt_tokens=request.num_prompt_tokens,
            num_computed_tokens=request.num_computed_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=request.num_cached_tokens,
            num_preemptions=request.num_preemptions,
            num_blocks=len(self._kv_cache.block_ids(request)),
            num_free_blocks=self._kv_cache.pool.num_available,
            position=positions.get(request.request_id),
            wait=self._why_waiting(request, head or request, running) if waits else None,
        )

    def _why_waiting(
        self, request: Request, head: Request, running: Sequence[Request]
    ) -> WaitReason:
        """The first limit that keeps a request from running, ``head`` being first in the line."""
        config = self._config
        most = self._tenant_limits.most(request.tenant)
        if most is not None:
            num_own = sum(other.tenant == request.tenant for other in running)
            if num_own >= most:
                text = f"tenant {request.tenant!r} runs {num_own} of at most {most} requests"
                return WaitReason("tenant", most - num_own, 1, text)
        if len(running) >= config.max_num_seqs:
            text = f"all {config.max_num_seqs} slots are taken (max_num_seqs)"
            return WaitReason("slots", 0, 1, text)
        num_paced = self._pacing.limits.num_seqs
        if len(running) >= num_paced:
            text = f"more than {num_paced} requests would decode too slowly (target_itl)"
            return WaitReason("target_itl", 0, 1, text)
        if self._kv_cache.awaits_prefix(request):
            text = "others are computing the beginning of its prompt, which it then shares"
            return WaitReason("prefix", 0, 1, text)
        num_missing = self._num_missing_blocks(request)
        if request is not head and self._keeps_line(head):
            text = f"blocks are kept for {head.request_id}, which {head.num_times_passed} passed"
            return WaitReason("head_of_line", head.num_times_passed, config.max_head_passes, text)
        available = self._kv_cache.pool.num_available
        if num_missing > 0:
            text = f"it needs {available + num_missing} KV blocks and {available} are there"
            return WaitReason("kv_blocks", available, available + num_missing, text)
        if config.batching != "continuous":
            return WaitReason("batch", len(running), 0, "it leaves with the next batch")
        if self._budget_left <= 0:
            num_tokens = self._pacing.limits.num_tokens
            text = f"the step's {num_tokens} tokens went to others"
            if num_tokens < config.max_num_batched_tokens:
                text += " (fewer than max_num_batched_tokens, for target_itl)"
            return WaitReason("token_budget", 0, 1, text)
        if config.scheduler_delay_factor > 0.0 and running:
            text = "it waits for company (scheduler_delay_factor)"
            return WaitReason("delay_factor", len(running), 0, text)
        return WaitReason("next_step", 1, 1, "nothing is in its way: it starts at the next step")

    def _keeps_line(self, head: Request) -> bool:
        """Whether the first in the line lacks blocks and nobody may pass it any more."""
        return not self._line.lets_others_pass(head) and self._num_missing_blocks(head) > 0

    def _num_missing_blocks(self, request: Request) -> int:
        return self._kv_cache.num_missing_blocks(request, self._num_reserved(request))


def _finished_report(record: FinishedRequest) -> RequestReport:
    return RequestReport(
        request_id=record.request_id,
        state="finished",
        tenant=record.tenant,
        priority=record.priority,
        arrival_s=record.arrival_s,
        num_prompt_tokens=record.num_prompt_tokens,
        num_output_tokens=record.num_output_tokens,
        num_cached_tokens=record.num_cached_tokens,
        num_preemptions=record.num_preemptions,
        finish_reason=record.reason.value,
    )


def _with_events(report: RequestReport, events: Iterable[Event]) -> RequestReport:
    shown = tuple(
        RequestEvent(
            at_s=time_s - report.arrival_s,
            kind=kind,
            details=dict(zip(EVENT_FIELDS[kind], values, strict=False)),
        )
        for time_s, kind, values in events
    )
    return replace(report, events=shown)
