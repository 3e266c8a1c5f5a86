"""Questions to the engine loop that are answered between two steps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import count

from chairlift.engine.messages import Inspect, Inspection
from chairlift.errors import EngineDeadError
from chairlift.outputs import RequestReport

# An HTTP request's id becomes those of its choices in the core: its kind before it; the number of
# the prompt, a number that tells it from another one of the same id, and the choice after it.
_BEFORE, _AFTER = r"(?:(?:chat)?cmpl-)?", r"(?:-\d+)?(?:#\d+)?(?:/\d+)?"


def belongs_to(request_id: str) -> Callable[[str], bool]:
    """A test whether a choice's id in the core belongs to a request, as a client names it."""
    pattern = re.compile(_BEFORE + re.escape(request_id) + _AFTER)
    return lambda core_id: pattern.fullmatch(core_id) is not None


class Inspections:
    """Matches questions with their answers, on one event loop."""

    def __init__(self) -> None:
        self._tickets = count()
        self._waiting: dict[int, asyncio.Future[tuple[RequestReport, ...]]] = {}

    async def ask(
        self, request_id: str | None, send: Callable[[Inspect], None]
    ) -> tuple[RequestReport, ...]:
        """Send a question and wait for its answer.

        Raises:
            EngineDeadError: The engine ends before it has answered.
        """
        ticket = next(self._tickets)
        answer: asyncio.Future[tuple[RequestReport, ...]]
        answer = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        try:
            send(Inspect(ticket, request_id))
            return await answer
        finally:
            self._waiting.pop(ticket, None)

    def answer(self, inspection: Inspection) -> None:
        """An answer has come; nobody may be waiting for it any more."""
        waiting = self._waiting.get(inspection.ticket)
        if waiting is not None and not waiting.done():
            waiting.set_result(inspection.reports)

    def fail(self, reason: str) -> None:
        """The engine has ended: no answer will come."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EngineDeadError(reason))
