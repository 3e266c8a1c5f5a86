"""What the server needs of an engine; ``engine.AsyncEngine`` and the tests' fake provide it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from chairlift.config import EngineLimits
from chairlift.engine.stats import EngineStats
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.errors import EngineDeadError
from chairlift.inputs import NOBODY, Account, GenerateRequest
from chairlift.outputs import RequestOutput, RequestReport
from chairlift.sampling_params import SamplingParams


class TokenizerClient(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of ``text``."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of ``token_ids``; bytes that are no character become U+FFFD."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be part of a character."""
        ...


class ChatTemplateClient(Protocol):
    """Messages to the model's prompt format."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text. Raises ``InvalidParameterError`` where the template refuses."""
        ...


class InputProcessorClient(Protocol):
    """Prompt and parameters to a validated request."""

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
        """Tokenise off the event loop where that takes long, and check all limits."""
        ...

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        """Tokenise alone, with the same checks of the text."""
        ...


class OutputStream(Protocol):
    """Pieces of one answer; what piled up since the last piece comes as one."""

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        """Itself."""
        ...

    async def aclose(self) -> None:
        """End the request, if it has not ended."""
        ...


class EngineClient(Protocol):
    """The engine as the server sees it."""

    @property
    def model_name(self) -> str:
        """What users call the model."""
        ...

    @property
    def limits(self) -> EngineLimits:
        """The one bound for requests."""
        ...

    @property
    def tokenizer(self) -> TokenizerClient:
        """The model's tokenizer."""
        ...

    @property
    def chat_template(self) -> ChatTemplateClient | None:
        """The model's chat template, if it has one."""
        ...

    @property
    def input_processor(self) -> InputProcessorClient:
        """Makes the requests that ``generate`` takes."""
        ...

    @property
    def is_alive(self) -> bool:
        """False once the engine has ended for good."""
        ...

    @property
    def silence_s(self) -> float:
        """Seconds since the engine was last heard of; it speaks at least every second if idle."""
        ...

    def check_admission(
        self, num_choices: int = 1, *, account: Account = NOBODY, num_entering: int = 0
    ) -> None:
        """Raise ``EngineOverloadedError``, ``EngineDrainingError`` or ``EngineDeadError``."""
        ...

    def generate(self, request: GenerateRequest, *, stream: bool = True) -> OutputStream:
        """Start answering, in pieces or as one whole. Raises as ``check_admission``."""
        ...

    async def inspect(self, request_id: str | None = None) -> Sequence[RequestReport]:
        """Report on a request's choices or, without their events, on all."""
        ...

    def abort_choices(self, core_ids: Sequence[str]) -> None:
        """End choices by their ids in the core, as reports name them."""
        ...

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms as of the last step."""
        ...

    def usage_of(self, tenant: str) -> TenantUsage:
        """What a tenant uses, and has used."""
        ...

    async def wait_dead(self) -> EngineDeadError:
        """Return the reason once the engine has died or been closed."""
        ...

    async def drain(self, timeout_s: float) -> int:
        """Take nothing new, wait for what runs, abort what is left; say how much that was."""
        ...

    async def close(self) -> None:
        """End the engine."""
        ...
