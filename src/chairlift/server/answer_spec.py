"""What a client asked its answer to hold, apart from the generated text; and its parts by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chairlift.outputs import RequestOutput, TokenLogprob


@dataclass(frozen=True, slots=True)
class AnswerSpec:
    """Settings of one answer, the same for all its choices.

    Attributes:
        response_id: ``id`` of the answer and of each chunk.
        model: The served name to report.
        created: Unix time in seconds.
        num_choices: Choices per prompt.
        has_logprobs: Each token's logprob is reported.
        has_prompt_logprobs: ``prompt_logprobs`` was asked for by that name.
        has_token_ids: ``token_ids`` and ``prompt_token_ids`` are reported.
        include_usage: The stream ends with a chunk that holds the usage.
        continuous_usage: Every chunk holds the usage so far.
        echoed_texts: With ``echo``: the text of each prompt, put before each choice's text.
    """

    response_id: str
    model: str
    created: int
    num_choices: int = 1
    has_logprobs: bool = False
    has_prompt_logprobs: bool = False
    has_token_ids: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    echoed_texts: tuple[str, ...] = ()


@dataclass(slots=True)
class ChoicePiece:
    """What is new of one choice, in the answer's order of choices.

    Attributes:
        index: Number of the choice in the whole answer: prompt by prompt.
        text: New text, without an echoed prompt.
        finish_reason: "stop" or "length" in the last piece.
        output: The request output it belongs to, for what concerns all choices of a prompt.
    """

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] | None
    finish_reason: str | None
    stop_reason: str | int | None
    output: RequestOutput
    echoed_text: str | None = None
    echoed_logprobs: Sequence[TokenLogprob | None] | None = None
    prompt_logprobs: Sequence[TokenLogprob | None] | None = None


class ChoiceStyle(Protocol):
    """How one endpoint writes choices; keeps state per choice, so one is made per answer."""

    whole_object: str
    chunk_object: str

    def fast_piece(self, index: int) -> tuple[bytes, bytes]:
        """JSON before and after the escaped text of a plain piece that is not the first."""
        ...

    def piece(self, piece: ChoicePiece, *, is_first: bool) -> dict[str, Any]:
        """The content of a piece that belongs to this endpoint alone."""
        ...

    def whole(self, piece: ChoicePiece) -> dict[str, Any]:
        """The same for a whole choice."""
        ...


def usage(outputs: Iterable[RequestOutput]) -> dict[str, Any]:
    """Token counts over the latest output of each prompt."""
    num_prompt = num_completion = num_cached = 0
    for output in outputs:
        num_prompt += len(output.prompt_token_ids)
        num_completion += output.num_output_tokens
        num_cached += output.num_cached_tokens
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }
