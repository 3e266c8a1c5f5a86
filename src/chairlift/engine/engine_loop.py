"""The engine's own loop: take in what came, run a step, hand on what it gave."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from chairlift.engine.engine_core import EngineCore
from chairlift.engine.inspections import belongs_to
from chairlift.engine.messages import (
    AbortRequests,
    AddRequests,
    Command,
    Inspect,
    Inspection,
    StepBatch,
    Stop,
)
from chairlift.errors import RequestError
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, StepOutput

HEARTBEAT_S = 1.0
"""How often an engine that has nothing to do says that it is there, in seconds."""


class Inbox(Protocol):
    """Where commands arrive."""

    def receive(self, timeout_s: float | None) -> list[Command]:
        """All commands that are there, in order.

        Args:
            timeout_s: How long to wait for the first: 0 not at all, ``None`` for ever. Waiting
                uses no CPU.
        """
        ...


def run_engine_loop(
    core: EngineCore,
    inbox: Inbox,
    send: Callable[[StepBatch | Inspection], None],
    clock: Callable[[], float] = time.monotonic,
    heartbeat_s: float | None = None,
) -> None:
    """Run steps while there is work and wait for commands while there is none, until ``Stop``.

    Args:
        send: Takes what each turn gave, and answers to questions. Must not block for long: the
            next step waits for it.
        heartbeat_s: Send an empty batch at least so often while idle; ``None``: never.

    Raises:
        EngineDeadError: Steps keep failing.
        Exception: Whatever the scheduler raised; its state is not to be trusted after that.
    """
    while True:
        outputs: list[StepOutput] = []
        wait_s = core.wait_s()
        for command in inbox.receive(heartbeat_s if wait_s is None else wait_s):
            if isinstance(command, Stop):
                return
            if isinstance(command, Inspect):
                send(_inspect(core, command))
            else:
                outputs += _apply(core, command)
        if core.has_work:
            outputs += core.step()
        send(StepBatch(outputs, clock(), core.stats()))


def _inspect(core: EngineCore, question: Inspect) -> Inspection:
    request_id = question.request_id
    is_wanted = None if request_id is None else belongs_to(request_id)
    return Inspection(question.ticket, tuple(core.explain(is_wanted)))


def _apply(core: EngineCore, command: AddRequests | AbortRequests) -> list[StepOutput]:
    if isinstance(command, AbortRequests):
        return core.abort(command.request_ids)
    return [output for request in command.requests for output in _add(core, request)]


def _add(core: EngineCore, request: CoreRequest) -> list[StepOutput]:
    """Queue a request; one that the scheduler refuses fails alone."""
    try:
        core.add_request(request)
    except (RequestError, ValueError) as error:
        return [StepOutput(request.request_id, finish_reason=FinishReason.ERROR, error=str(error))]
    return []
