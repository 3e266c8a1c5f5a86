"""Schemas of request bodies, validated strictly: no unknown field, no number sent as a string.

Bounds are checked by ``SamplingParams``, the one place that knows them. A field set to ``null`` is
the same as a field that is absent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

_TOKEN_IDS = {"type": "array", "items": {"type": "integer"}}
PromptField = Annotated[
    Any,
    WithJsonSchema(
        {
            "description": "A string, a list of strings, a list of token ids, or a list of those.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                _TOKEN_IDS,
                {"type": "array", "items": _TOKEN_IDS},
            ],
        }
    ),
]
TokenIdsField = Annotated[Any, WithJsonSchema(_TOKEN_IDS)]


class Schema(BaseModel):
    """Base of all request bodies; each one's validator is made when it is first used."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class StreamOptions(Schema):
    """What a stream carries besides the text."""

    include_usage: bool | None = Field(
        None, description="Send a last chunk with the usage and no choices."
    )
    continuous_usage_stats: bool | None = Field(
        None, description="With include_usage: the usage so far in every chunk."
    )
    include_obfuscation: Literal[False] | None = Field(
        None, description="Padding against traffic analysis is not supported."
    )


class IgnoredFields(Schema):
    """OpenAI's fields that do not change an answer; accepted so that clients work, and unused."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    parallel_tool_calls: bool | None = None


class SamplingFields(IgnoredFields):
    """What both generating endpoints take."""

    model: str | None = Field(None, description="A served name; absent: the served model.")
    n: int = Field(1, description="Choices per prompt, 1 to 128.")
    max_tokens: int | None = None
    temperature: float = Field(1.0, description="0 is greedy.")
    top_p: float = Field(1.0, description="Above 0, at most 1.")
    presence_penalty: float = Field(0.0, description="-2 to 2.")
    frequency_penalty: float = Field(0.0, description="-2 to 2.")
    logit_bias: dict[str, float] | None = Field(None, description="-100 to 100 by token id.")
    seed: int | None = Field(None, description="A 64-bit integer; makes sampling repeatable.")
    stop: str | list[str] | None = Field(None, description="Up to 16 non-empty strings.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    # Extensions, named as in vLLM.
    top_k: int = Field(0, description="0 or -1: every token.")
    min_p: float = Field(0.0, description="0 to 1.")
    repetition_penalty: float = Field(1.0, description="Above 0, at most 10.")
    min_tokens: int = Field(0, description="No stop before so many tokens.")
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    prompt_logprobs: int | None = Field(None, description="0 to 20; not with stream.")
    return_token_ids: bool = Field(False, description="Add token_ids and prompt_token_ids.")
    request_id: str | None = Field(None, description="1 to 128 printable ASCII characters.")
    cache_salt: str | None = Field(None, description="Share cached prefixes only within a salt.")
    priority: int | None = Field(None, description="-1000 to 1000; lower is more urgent.")


class CompletionRequest(SamplingFields):
    """Body of ``POST /v1/completions``."""

    prompt: PromptField
    echo: bool = Field(False, description="Put the prompt before the text.")
    logprobs: int | None = Field(None, description="0 to 20 alternatives per token.")
    add_special_tokens: bool = Field(True, description="Let the tokenizer add BOS and such.")


class TextPart(Schema):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Schema):
    """One message of a conversation; the model's chat template decides which roles it takes."""

    role: str
    content: str | list[TextPart]
    name: str | None = None
    # What OpenAI's answers carry, sent back by clients with the history.
    refusal: Literal[None] = None
    annotations: list[Any] | None = Field(None, max_length=0)


class ChatCompletionRequest(SamplingFields):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, description="The newer name of max_tokens.")
    logprobs: bool = False
    top_logprobs: int | None = Field(None, description="0 to 20; needs logprobs.")
    add_generation_prompt: bool = True
    add_special_tokens: bool = Field(False, description="On top of those of the template.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="More variables for the model's chat template."
    )


class TokenizeRequest(Schema):
    """Body of ``POST /tokenize``: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    add_special_tokens: bool | None = Field(
        None, description="Default: true for a prompt, false for messages."
    )
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False


class DetokenizeRequest(Schema):
    """Body of ``POST /detokenize``."""

    model: str | None = None
    tokens: TokenIdsField
