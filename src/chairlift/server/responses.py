"""Schemas of the answers: what ``/openapi.json`` documents and tests check answers against.

Answers themselves are assembled as plain data (``completion_format``, ``chat_format``); running
them through these models would only cost time.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorBody(Answer):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(Answer):
    """Envelope of every error, as in OpenAI's API."""

    error: ErrorBody


class PromptTokensDetails(Answer):
    """How the prompt was computed."""

    cached_tokens: int


class Usage(Answer):
    """Token counts, summed over prompts and choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(Answer):
    """Logprobs in the form of ``/v1/completions``; the lists run in parallel."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Choice(Answer):
    """What all choices have."""

    index: int
    finish_reason: Literal["stop", "length"] | None
    stop_reason: str | int | None = None
    seed: int | None = Field(None, description="The seed used, given or drawn.")
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, dict[str, Any]] | None] | None = None


class CompletionChoice(Choice):
    """One choice of a completion, or a piece of it in a stream."""

    text: str
    logprobs: CompletionLogprobs | None


class CompletionResponse(Answer):
    """Answer of ``POST /v1/completions``; chunks of a stream have the same form."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TopLogprob(Answer):
    """A token that could have been."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    """A token that was chosen."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    """Logprobs in the form of ``/v1/chat/completions``."""

    content: list[ChatTokenLogprob]


class AssistantMessage(Answer):
    """The model's turn."""

    role: Literal["assistant"]
    content: str


class ChatChoice(Choice):
    """One choice of a chat completion."""

    message: AssistantMessage
    logprobs: ChatLogprobs | None


class ChatCompletionResponse(Answer):
    """Answer of ``POST /v1/chat/completions``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(Answer):
    """New text; the role comes with the first piece."""

    role: Literal["assistant"] | None = None
    content: str


class ChatChunkChoice(Choice):
    """A piece of one choice."""

    delta: ChatDelta
    logprobs: ChatLogprobs | None


class ChatCompletionChunk(Answer):
    """One event of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class ModelCard(Answer):
    """One served name."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(Answer):
    """Answer of ``GET /v1/models``."""

    object: Literal["list"]
    data: list[ModelCard]


class TokenizeResponse(Answer):
    """Answer of ``POST /tokenize``."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeResponse(Answer):
    """Answer of ``POST /detokenize``."""

    prompt: str


class StatusResponse(Answer):
    """Answer of ``GET /health`` and ``/ping``."""

    status: Literal["ok", "draining", "dead"]


class VersionResponse(Answer):
    """Answer of ``GET /version``."""

    version: str


class Wait(Answer):
    """Why a choice waits: the limit, what there is of it, what it takes, and a sentence."""

    limit: str
    have: int
    need: int
    text: str


class ChoiceReport(Answer):
    """What is known of one choice of a request.

    ``position`` is its place in the line, from 0; ``blocks`` are KV blocks.
    """

    id: str
    state: Literal["waiting", "running", "preempted", "finished"]
    finish_reason: str | None
    tenant: str
    priority: int
    age_s: float
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    completion_tokens: int
    preemptions: int
    blocks: int
    free_blocks: int
    position: int | None
    wait: Wait | None
    events: list[dict[str, str | int | float]]


class ChoiceReportList(Answer):
    """Answer of ``GET /v1/requests``."""

    object: Literal["list"]
    data: list[ChoiceReport]


class RequestDetails(Answer):
    """Answer of ``GET /v1/requests/{id}``."""

    id: str
    object: Literal["request"]
    choices: list[ChoiceReport]


class DeletedRequest(Answer):
    """Answer of ``DELETE /v1/requests/{id}``; ``deleted`` is false if it had ended before."""

    id: str
    object: Literal["request.deleted"]
    deleted: bool
    aborted_choices: int
    completion_tokens: int
