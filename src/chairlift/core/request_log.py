"""What happened to each request, kept short: a bounded list per request, bounded many finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from chairlift.core.preemption import Preemption
from chairlift.core.request import Request
from chairlift.core.scheduler_output import ScheduledRequest
from chairlift.outputs import FinishReason

Event: TypeAlias = "tuple[float, str, tuple[str | int, ...]]"
"""Time on the engine's clock in seconds, kind, and values of the kind's ``EVENT_FIELDS``: the last
ones may be left out."""

EVENT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "queued": ("prompt_tokens", "priority"),
    "blocked": ("limit", "have", "need"),
    "scheduled": ("tokens", "cached_tokens", "steps"),
    "preempted": ("mode", "by", "why", "estimate"),
    "resumed": ("tokens", "cached_tokens", "steps", "swapped_tokens"),
    "first_token": (),
    "finished": ("reason", "output_tokens"),
}
MAX_EVENTS = 48
MAX_FINISHED = 1024


class FinishedRequest(NamedTuple):
    """What is kept of a request that has ended."""

    request_id: str
    tenant: str
    priority: int
    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    reason: FinishReason
    events: list[Event]


class RequestLog:
    """Events of live requests and of the last ``MAX_FINISHED`` that ended.

    Of a request with more than ``MAX_EVENTS`` events the oldest are dropped, but for the first.
    Steps that only go on with a prompt are added to the event that began it.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: dict[str, list[Event]] = {}
        self._finished: dict[str, FinishedRequest] = {}

    def queued(self, request: Request) -> None:
        """A request has arrived."""
        core_request = request.core_request
        values = request.num_prompt_tokens, core_request.priority
        self._events[request.request_id] = [(core_request.arrival_time_s, "queued", values)]

    def scheduled(
        self, rows: Iterable[ScheduledRequest], prefilling: Mapping[str, Request]
    ) -> None:
        """A step computes prompts: those of the rows whose requests are ``prefilling``."""
        for row in rows:
            request = prefilling.get(row.request_id)
            if request is not None:
                self._note_prefill(request, row)

    def blocked(self, request: Request, limit: str, have: int, need: int) -> None:
        """A request did not start although it was its turn; repeated ones keep their first time."""
        time_s, kind, values = self._events[request.request_id][-1]
        if kind == "blocked" and values[0] == limit:
            self._events[request.request_id][-1] = (time_s, kind, (limit, have, need))
        else:
            self._add(request, "blocked", limit, have, need)

    def preempted(self, request: Request, how: Preemption, by: Request, why: str) -> None:
        """A running request lost slot and blocks."""
        estimate = (how.estimate,) if how.estimate else ()
        self._add(request, "preempted", how.mode, by.request_id, why, *estimate)

    def finished(self, request: Request, reason: FinishReason) -> None:
        """A request has ended."""
        events = self.events_of(request)
        events.append((self.now_s, "finished", (reason.value, request.num_output_tokens)))
        del self._events[request.request_id]
        core_request = request.core_request
        self._finished.pop(request.request_id, None)
        self._finished[request.request_id] = FinishedRequest(
            request.request_id,
            request.tenant,
            core_request.priority,
            core_request.arrival_time_s,
            request.num_prompt_tokens,
            request.num_output_tokens,
            request.num_cached_tokens,
            request.num_preemptions,
            reason,
            events,
        )
        if len(self._finished) > MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def events_of(self, request: Request) -> list[Event]:
        """Events of a live request in order, its first token included."""
        events = list(self._events[request.request_id])
        first_s = request.first_token_s
        if first_s:
            place = next((i for i, event in enumerate(events) if event[0] > first_s), len(events))
            events.insert(place, (first_s, "first_token", ()))
        return events

    def finished_requests(self) -> Iterable[FinishedRequest]:
        """Those that are remembered, in the order they ended."""
        return self._finished.values()

    def _note_prefill(self, request: Request, row: ScheduledRequest) -> None:
        num_tokens = row.num_scheduled_tokens
        if row.replace_blocks:
            kind = "resumed" if request.num_preemptions else "scheduled"
            swapped = (request.num_swapped_tokens,) if request.num_preemptions else ()
            self._add(request, kind, num_tokens, row.num_computed_tokens, 1, *swapped)
            return
        events = self._events[request.request_id]
        time_s, kind, values = events[-1]
        if kind in ("scheduled", "resumed"):
            tokens, cached, steps, *rest = values
            events[-1] = (time_s, kind, (int(tokens) + num_tokens, cached, int(steps) + 1, *rest))

    def _add(self, request: Request, kind: str, *values: str | int) -> None:
        events = self._events[request.request_id]
        events.append((self.now_s, kind, values))
        if len(events) > MAX_EVENTS:
            del events[1]
