"""The asynchronous engine: requests from many tasks, answered by one engine loop elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from chairlift.config import EngineConfig, EngineLimits
from chairlift.engine.admission import Admission
from chairlift.engine.child import EngineChild
from chairlift.engine.front import Front
from chairlift.engine.input_processor import AsyncInputProcessor, InputProcessor, fan_out
from chairlift.engine.inspections import Inspections
from chairlift.engine.messages import (
    AbortRequests,
    AddRequests,
    EngineInfo,
    EngineTransport,
    Inspect,
    Inspection,
    StepBatch,
)
from chairlift.engine.output_processor import OutputProcessor
from chairlift.engine.phase_timer import PhaseCallback
from chairlift.engine.request_stream import Mailbox, RequestStream
from chairlift.engine.start import FrontCallback, StartedEngine, StartReport, start_engine
from chairlift.engine.stats import EngineStats, engine_stats
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.errors import EngineDeadError, EngineDrainingError
from chairlift.inputs import NOBODY, Account, CoreRequest, GenerateRequest
from chairlift.outputs import RequestOutput, RequestReport
from chairlift.tokenization.chat_template import ChatTemplate
from chairlift.tokenization.tokenizer import Tokenizer

_ABORT_TIMEOUT_S = 5.0


class AsyncEngine:
    """Takes requests on an event loop and streams their answers.

    Made by :meth:`start`. All methods are to be called on the event loop it was started on.

    Attributes:
        input_processor: Makes the requests that :meth:`generate` takes.
    """

    def __init__(self, started: StartedEngine) -> None:
        self._front: Front = started.front
        self._info = started.info
        self._report = started.report
        self._transport: EngineTransport = started.transport
        self.input_processor = AsyncInputProcessor(
            InputProcessor(started.front.tokenizer, started.info.limits)
        )
        self._processor = OutputProcessor(started.front.tokenizer)
        limits = started.info.limits
        self._admission = Admission(limits.max_num_waiting, limits.target_ttft_s)
        self._core_stats = started.info.stats
        self._heard_s = time.monotonic()
        self._mailboxes: dict[str, Mailbox] = {}
        self._unended: set[str] = set()  # ids in the core, until it says they have ended
        self._unsent: list[CoreRequest] = []
        self._inspections = Inspections()
        self._num_renamed = 0
        self._is_draining = False
        self._death: asyncio.Future[EngineDeadError] = asyncio.get_running_loop().create_future()
        self._idle = asyncio.Event()
        self._idle.set()
        self._transport.attach(self)

    @classmethod
    async def start(
        cls,
        config: EngineConfig | None = None,
        *,
        in_process: bool = False,
        on_phase: PhaseCallback | None = None,
        on_front: FrontCallback | None = None,
        child: EngineChild | None = None,
    ) -> AsyncEngine:
        """Load the model and start the engine loop; returns once it can compute.

        Args:
            in_process: Run the loop in a thread of this process rather than in a process of its
                own. Simpler to embed; a crash in native code then takes this process with it.
            on_phase: Told each part of the engine's start, with its seconds, as it ends.
            on_front: Told of the text side as soon as it is there, on another thread, while the
                engine may still be loading; the start is not over before it returns.
            child: The engine's process, if it has been started already; owned from here on.

        Raises:
            ConfigError: The configuration does not go with the model or the machine.
            ModelLoadError: The model cannot be found or loaded.
            EngineError: The engine could not be started for another reason.
        """
        return cls(
            await start_engine(config or EngineConfig(), in_process, on_phase, on_front, child)
        )

    @property
    def limits(self) -> EngineLimits:
        """The one bound for requests."""
        return self._info.limits

    @property
    def info(self) -> EngineInfo:
        """What is known of the engine since its start."""
        return self._info

    @property
    def model_name(self) -> str:
        """What users call the model."""
        return self._front.model_name

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._front.tokenizer

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template, if it has one."""
        return self._front.chat_template

    @property
    def start_report(self) -> StartReport:
        """How long the start took."""
        return self._report

    @property
    def is_alive(self) -> bool:
        """False once the engine has died or been closed."""
        return not self._death.done()

    @property
    def silence_s(self) -> float:
        """Seconds since the engine loop was last heard of.

        An idle one speaks every second, a busy one after each step: a long silence means that its
        process is stopped or hangs. It may come back.
        """
        return time.monotonic() - self._heard_s

    @property
    def is_draining(self) -> bool:
        """No new requests are taken."""
        return self._is_draining

    def check_admission(
        self, num_choices: int = 1, *, account: Account = NOBODY, num_entering: int = 0
    ) -> None:
        """Refuse what cannot be taken now; to be asked before a prompt is tokenised.

        Args:
            num_choices: How many choices want to be computed.
            account: For whom, and how urgently.
            num_entering: Choices that have been let in and are not here yet.

        Raises:
            EngineOverloadedError: Too many requests are waiting.
            StartTooLateError: They would start later than the target.
            EngineDrainingError: The engine is shutting down.
            EngineDeadError: The engine has died or been closed.
        """
        if self._death.done():
            raise EngineDeadError(str(self._death.result()))
        if self._is_draining:
            raise EngineDrainingError("the engine is shutting down and takes no new requests")
        core = self._core_stats.scheduler
        num_waiting = len(self._unended) - core.num_running
        self._admission.check(max(0, num_waiting) + num_entering, num_choices)
        # Those that the engine has not counted yet come before this one, and so do its own choices.
        num_unseen = max(0, num_waiting - core.num_waiting) + num_entering + num_choices - 1
        delay = core.start_delays.of(account.tenant, account.priority)
        self._admission.check_start(delay.start_s + num_unseen * delay.each_s)

    def generate(self, request: GenerateRequest, *, stream: bool = True) -> RequestStream:
        """Start answering a request.

        Two live requests may have the same id: both are answered, under the id they came with.

        Args:
            request: Made by :attr:`input_processor`.
            stream: Give pieces as they come. If not, the whole answer is one piece, at the end.

        Raises:
            EngineOverloadedError, EngineDrainingError, EngineDeadError: As
                :meth:`check_admission`; nothing has been started then.
        """
        account = Account(request.tenant, request.priority)
        self.check_admission(request.sampling_params.n, account=account)
        key, core_requests = self._name_choices(request)
        core_ids = [core_request.request_id for core_request in core_requests]
        self._processor.add(key, request, core_ids, is_streamed=stream)
        self._unended.update(core_ids)
        self._idle.clear()
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_unsent)
        self._unsent += core_requests
        answer = RequestStream(partial(self._take, key), partial(self._abandon, key))
        self._mailboxes[key] = answer.mailbox
        return answer

    def abort(self, request_id: str) -> bool:
        """End all live requests of this id; their streams get a last piece that says so.

        Returns:
            Whether there were any.
        """
        core_ids = self._processor.live_core_ids(request_id)
        self._send_aborts(core_ids)
        return bool(core_ids)

    async def inspect(self, request_id: str | None = None) -> tuple[RequestReport, ...]:
        """Ask the engine about a request's choices, or about all: those alive, then ended ones.

        Args:
            request_id: As clients name it; without one, reports come without their events.

        Raises:
            EngineDeadError: The engine has died or been closed.
        """
        if self._death.done():
            raise EngineDeadError(str(self._death.result()))
        return await self._inspections.ask(request_id, self._send_question)

    def abort_choices(self, core_ids: Sequence[str]) -> None:
        """End choices by their ids in the core, as reports name them."""
        self._send_aborts(list(core_ids))

    def stats(self) -> EngineStats:
        """Gauges and counters as of the last step."""
        return engine_stats(self._core_stats, self._processor.observations, len(self._unended))

    def usage_of(self, tenant: str) -> TenantUsage:
        """What a tenant uses, and has used."""
        return self._processor.usage_of(tenant)

    async def wait_dead(self) -> EngineDeadError:
        """Return when the engine has died, with the reason, or when it has been closed."""
        return await asyncio.shield(self._death)

    async def drain(self, timeout_s: float) -> int:
        """Take nothing new and wait for what runs; abort what is left after ``timeout_s``.

        Returns:
            How many choices were aborted.
        """
        self._is_draining = True
        if await self._is_idle_within(timeout_s):
            return 0
        left = list(self._unended)
        self._send_aborts(left)
        await self._is_idle_within(_ABORT_TIMEOUT_S)
        return len(left)

    async def close(self) -> None:
        """End the engine now; live streams end without a last piece. May be called again."""
        if not self._death.done():
            self._death.set_result(EngineDeadError("the engine has been closed"))
        self._inspections.fail("the engine has been closed")
        for mailbox in self._mailboxes.values():
            mailbox.close()
        self._mailboxes.clear()
        self._unsent.clear()
        self._end_all()
        await self._transport.close()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def on_step(self, batch: StepBatch) -> None:
        """As :class:`~chairlift.engine.messages.EngineListener`."""
        self._core_stats = batch.stats
        self._heard_s = time.monotonic()
        ended = [out.request_id for out in batch.outputs if out.finish_reason is not None]
        if ended:
            self._unended.difference_update(ended)
            self._admission.count_finished(len(ended))
        processed = self._processor.process(batch.outputs, batch.now_s)
        self._send_aborts(processed.aborts)
        for key in processed.news:
            self._mailboxes[key].wake()
        if not self._unended:
            self._idle.set()

    def on_inspection(self, inspection: Inspection) -> None:
        """As :class:`~chairlift.engine.messages.EngineListener`."""
        self._inspections.answer(inspection)

    def on_death(self, error: EngineDeadError) -> None:
        """As :class:`~chairlift.engine.messages.EngineListener`."""
        if not self._death.done():
            self._death.set_result(error)
        self._inspections.fail(str(error))
        for mailbox in self._mailboxes.values():
            mailbox.fail(EngineDeadError(str(error)))
        self._end_all()

    def _name_choices(self, request: GenerateRequest) -> tuple[str, list[CoreRequest]]:
        """A key for the request, and its choices, under ids that nothing in the core has."""
        key = request.request_id
        while True:
            core_requests = fan_out(request, key, self._front.eos_token_ids)
            is_free = self._unended.isdisjoint([c.request_id for c in core_requests])
            if key not in self._mailboxes and is_free:
                return key, core_requests
            self._num_renamed += 1
            key = f"{request.request_id}#{self._num_renamed}"

    def _send_unsent(self) -> None:
        """Send what was asked for in this turn of the event loop, as one message."""
        if self._unsent:
            self._transport.send(AddRequests(tuple(self._unsent)))
            self._unsent.clear()

    def _send_question(self, question: Inspect) -> None:
        self._send_unsent()
        self._transport.send(question)

    def _send_aborts(self, core_ids: list[str]) -> None:
        if core_ids:
            self._send_unsent()
            self._transport.send(AbortRequests(tuple(core_ids)))

    def _take(self, key: str) -> RequestOutput:
        try:
            output = self._processor.take(key)
        except Exception:
            self._mailboxes.pop(key, None)
            raise
        if output.finished:
            self._mailboxes.pop(key, None)
        return output

    def _abandon(self, key: str) -> None:
        """Nobody waits for this request any more."""
        self._mailboxes.pop(key, None)
        self._send_aborts(self._processor.remove(key))

    def _end_all(self) -> None:
        self._unended.clear()
        self._idle.set()

    async def _is_idle_within(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
