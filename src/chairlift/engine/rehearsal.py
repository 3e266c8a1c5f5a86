"""An engine without a model behind it, to go through everything in front of one beforehand."""

from __future__ import annotations

import asyncio
import time

from chairlift.config import EngineLimits
from chairlift.core.scheduler_stats import SchedulerStats
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.front import Front
from chairlift.engine.messages import (
    AddRequests,
    Command,
    EngineInfo,
    EngineListener,
    StepBatch,
)
from chairlift.engine.start import StartedEngine, StartReport
from chairlift.engine.stats import CoreStats, StepTimes
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, RequestTimings, StepOutput

_STATS = CoreStats(SchedulerStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), StepTimes())
_TOKEN_ID = 0


def rehearsal_engine(front: Front) -> AsyncEngine:
    """Make an engine with a model's text side that answers every request with the same tokens.

    To be called on an event loop, which it uses.
    """
    limits = EngineLimits(front.tokenizer.vocab_size, 1 << 20, 16, 1 << 16, 1)
    info = EngineInfo(limits, front.model_name, "", "", "", 0, 0, 0, "", _STATS)
    return AsyncEngine(
        StartedEngine(_Transport(), front, info, StartReport((), (), time.monotonic(), 0.0))
    )


class _Transport:
    """Answers requests in as many steps as they ask for tokens."""

    def __init__(self) -> None:
        self._listener: EngineListener | None = None

    def attach(self, listener: EngineListener) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        self._listener = listener

    def send(self, command: Command) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        if isinstance(command, AddRequests):
            for request in command.requests:
                self._step(request, 1)

    async def close(self) -> None:
        """As :class:`~chairlift.engine.messages.EngineTransport`."""
        self._listener = None

    def _step(self, request: CoreRequest, count: int) -> None:
        if self._listener is None:
            return
        now_s = time.monotonic()
        is_last = count >= (request.sampling_params.max_tokens or 1)
        output = StepOutput(
            request.request_id,
            (_TOKEN_ID,),
            FinishReason.LENGTH if is_last else None,
            timings=RequestTimings(request.arrival_time_s, now_s, now_s, now_s),
        )
        self._listener.on_step(StepBatch([output], now_s, _STATS))
        if not is_last:
            asyncio.get_running_loop().call_soon(self._step, request, count + 1)
