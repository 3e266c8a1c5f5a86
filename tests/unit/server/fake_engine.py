"""An engine without a model: answers are scripted, and it records what happened to each request."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chairlift.config import EngineLimits
from chairlift.engine.stats import EngineStats, HistogramSnapshot, StepTimes
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.errors import (
    ChairliftError,
    EngineDeadError,
    EngineDrainingError,
    InvalidParameterError,
)
from chairlift.inputs import NOBODY, Account, GenerateRequest
from chairlift.outputs import (
    ChoiceOutput,
    FinishReason,
    RequestOutput,
    RequestReport,
    TokenLogprob,
)
from chairlift.sampling_params import SamplingParams

VOCAB_SIZE = 300


class ByteTokenizer:
    """Token ids are the bytes of UTF-8; ids from 256 on stand for nothing."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""


class PlainChatTemplate:
    """``role: content`` lines; refuses the role ``tool`` as templates refuse."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        if any(message["role"] == "tool" for message in messages):
            raise InvalidParameterError("tools are not for this model", param="messages")
        lines = [f"{message['role']}: {_text(message['content'])}\n" for message in messages]
        header: str = (template_kwargs or {}).get("header", "")
        return header + "".join(lines) + ("assistant: " if add_generation_prompt else "")


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class FakeInputProcessor:
    """Tokenises into bytes; checks only what the server's own code relies on."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self.num_processed = 0

    async def process(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams,
        *,
        add_special_tokens: bool = True,
        cache_salt: str = "",
        account: Account = NOBODY,
        param: str = "prompt",
    ) -> GenerateRequest:
        self.num_processed += 1
        sampling_params.check_against_vocabulary(self._limits.vocab_size)
        ids = prompt.encode() if isinstance(prompt, str) else prompt
        if not all(0 <= token < self._limits.vocab_size for token in ids):
            raise InvalidParameterError(f"{param} holds a bad id", param=param)
        return GenerateRequest(
            request_id,
            tuple(ids),
            sampling_params,
            time.monotonic(),
            cache_salt,
            account.tenant,
            account.priority,
        )

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        return list(text.encode())


Script = Callable[[GenerateRequest], list[list[ChoiceOutput]]]


def say(text: str, *, size: int = 1) -> Script:
    """Every choice says ``text``, ``size`` bytes a piece, and stops or runs into max_tokens."""

    def script(request: GenerateRequest) -> list[list[ChoiceOutput]]:
        params = request.sampling_params
        ids = text.encode()[: params.max_tokens]
        reason = FinishReason.LENGTH if len(ids) < len(text.encode()) else FinishReason.STOP
        pieces = []
        for start in range(0, max(len(ids), 1), size):
            part = ids[start : start + size]
            is_last = start + size >= len(ids)
            pieces.append(
                [
                    ChoiceOutput(
                        index,
                        part.decode(),
                        tuple(part),
                        _logprobs(part, params.logprobs),
                        reason if is_last else None,
                    )
                    for index in range(params.n)
                ]
            )
        return pieces

    return script


def _logprobs(ids: Sequence[int], count: int | None) -> tuple[TokenLogprob, ...] | None:
    return None if count is None else tuple(logprob_of(token, count) for token in ids)


def logprob_of(token: int, count: int) -> TokenLogprob:
    """A made-up logprob: the token is the likeliest, its neighbours follow, the last impossible."""
    top = [(token, -0.25), (token + 1, -1.5), (token + 2, float("-inf"))]
    return TokenLogprob(token, -0.25, 1, tuple(top[:count]))


@dataclass
class FakeEngine:
    """See the module's docstring.

    Attributes:
        script: Pieces of the answer to a request.
        gate: Each piece but the first waits for it; set by default.
        refusal: Raised instead of taking requests.
        failure: Raised after ``fail_after`` pieces.
    """

    script: Script = field(default_factory=lambda: say("Hello"))
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    first_gate: asyncio.Event = field(default_factory=asyncio.Event)
    failure: ChairliftError | Exception | None = None
    fail_after: int = 0
    refusal: ChairliftError | None = None
    died: asyncio.Event = field(default_factory=asyncio.Event)
    model_name: str = "fake"
    max_num_waiting: int = 64
    running: int = 0
    started: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[GenerateRequest] = field(default_factory=list)
    num_aborted: int = 0
    num_finished: int = 0
    drained_with_s: float | None = None
    is_closed: bool = False
    usages: dict[str, TenantUsage] = field(default_factory=dict)
    reports: list[RequestReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = EngineLimits(VOCAB_SIZE, 512, 16, 64, self.max_num_waiting)
        self.tokenizer = ByteTokenizer()
        self.chat_template: PlainChatTemplate | None = PlainChatTemplate()
        self.input_processor = FakeInputProcessor(self.limits)
        self.silent_for_s = 0.0
        self.idle = asyncio.Event()
        self.idle.set()
        self.gate.set()
        self.first_gate.set()

    def check_admission(
        self, num_choices: int = 1, *, account: Account = NOBODY, num_entering: int = 0
    ) -> None:
        if self.refusal is not None:
            raise self.refusal

    def generate(
        self, request: GenerateRequest, *, stream: bool = True
    ) -> AsyncGenerator[RequestOutput, None]:
        self.check_admission()
        self.requests.append(request)
        return self._generate(request)

    async def _generate(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        self.running += 1
        self.idle.clear()
        self.started.set()
        try:
            count = 0
            for number, choices in enumerate(self.script(request)):
                if self.failure is not None and number == self.fail_after:
                    raise self.failure
                await (self.gate if number else self.first_gate).wait()
                count += sum(len(choice.token_ids) for choice in choices)
                yield self._output(request, choices, count, is_first=number == 0)
            self.num_finished += 1
        except (GeneratorExit, asyncio.CancelledError):
            self.num_aborted += 1
            self.aborted.set()
            raise
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()

    def _output(
        self, request: GenerateRequest, choices: list[ChoiceOutput], count: int, *, is_first: bool
    ) -> RequestOutput:
        wanted = request.sampling_params.prompt_logprobs
        scores: tuple[TokenLogprob | None, ...] | None = None
        if is_first and wanted is not None:
            rest = (logprob_of(token, wanted) for token in request.prompt_token_ids[1:])
            scores = (None, *rest)
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            choices=tuple(choices),
            finished=all(choice.finish_reason for choice in choices),
            seed=request.sampling_params.seed or 0,
            prompt_logprobs=scores,
            num_cached_tokens=2,
            num_output_tokens=count,
        )

    async def inspect(self, request_id: str | None = None) -> Sequence[RequestReport]:
        return [r for r in self.reports if request_id in (None, r.request_id)]

    def abort_choices(self, core_ids: Sequence[str]) -> None:
        self.reports = [
            dataclasses.replace(r, state="finished", finish_reason="abort", wait=None)
            if r.request_id in core_ids
            else r
            for r in self.reports
        ]

    def stats(self) -> EngineStats:
        histogram = HistogramSnapshot((0.1, 1.0), (1, 2, 3), 12.5)
        return EngineStats(
            num_running=self.running,
            num_waiting=9,
            num_live_blocks=16,
            num_cached_blocks=32,
            num_free_blocks=16,
            num_preemptions_total=3,
            prompt_tokens_total=100,
            generation_tokens_total=200,
            prefix_cache_queried_tokens=100,
            prefix_cache_hit_tokens=40,
            requests_finished={"stop": 4, "length": 5},
            num_overdue_total=3,
            start_delay_s=0.25,
            time_to_first_token_s=histogram,
            inter_token_latency_s=histogram,
            e2e_latency_s=histogram,
            queue_time_s=histogram,
            prompt_tokens=histogram,
            generation_tokens=histogram,
            step_times=StepTimes(num_steps=7, forward_s=1.5),
        )

    def usage_of(self, tenant: str) -> TenantUsage:
        return self.usages.get(tenant, TenantUsage())

    async def wait_dead(self) -> EngineDeadError:
        await self.died.wait()
        return EngineDeadError("the engine process was killed by SIGKILL")

    async def drain(self, timeout_s: float) -> int:
        self.drained_with_s = timeout_s
        self.refusal = EngineDrainingError("the engine is shutting down")
        await self.idle.wait()
        return 0

    async def close(self) -> None:
        self.is_closed = True

    @property
    def silence_s(self) -> float:
        return self.silent_for_s

    @property
    def is_alive(self) -> bool:
        return not (self.died.is_set() or self.is_closed)
