"""What the server needs of an engine; ``engine.AsyncEngine`` and the tests' fake provide it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from chairlift.config import EngineLimits
from chairlift.engine.stats import EngineStats
from chairlift.inputs import GenerateRequest
from chairlift.outputs import RequestOutput
from chairlift.sampling_params import SamplingParams


class TokenizerClient(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of ``text``."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of ``ids``; bytes that are no character become U+FFFD."""
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
        add_generation_prompt: bool,
        **kwargs: Any,
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
        param: str = "prompt",
    ) -> GenerateRequest:
        """Tokenise off the event loop where that takes long, and check all limits."""
        ...

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        """Tokenise alone, with the same checks of the text."""
        ...


class EngineClient(Protocol):
    """The engine as the server sees it."""

    model_name: str
    limits: EngineLimits
    tokenizer: TokenizerClient
    chat_template: ChatTemplateClient
    input_processor: InputProcessorClient

    @property
    def is_alive(self) -> bool:
        """False once the engine has ended for good."""
        ...

    def generate(
        self, request: GenerateRequest, *, is_streamed: bool
    ) -> AsyncGenerator[RequestOutput, None]:
        """Pieces of the answer, or one whole. Closing it, or cancelling its task, aborts."""
        ...

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms as of the last step."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new and wait for what runs; abort what is left after ``timeout_s``."""
        ...

    async def close(self) -> None:
        """End the engine."""
        ...
