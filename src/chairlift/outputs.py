"""What comes out of the engine, from one step's tokens to a finished answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class TokenLogprob(NamedTuple):
    """The model's own log-probability of a token, and of the likeliest ones at its place.

    ``rank`` is 1 for the likeliest token. ``top`` holds (token id, logprob), best first; its
    entry for the chosen token, if there, is the same float.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Moments of one request on the engine's monotonic clock, in seconds.

    ``queued_s`` is the arrival; ``scheduled_s`` when it first got tokens in a step;
    ``first_token_s`` and ``last_token_s`` when those were sampled. 0.0 where it has not happened.
    """

    queued_s: float
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0


class StepOutput(NamedTuple):
    """What one step did for one request; made by the scheduler, read by the output processor.

    Attributes:
        token_ids: New output tokens, in order; empty while a prompt is being computed.
        finish_reason: Set once, with the last tokens.
        stop_reason: The stop token id that ended it; ``None`` for EOS and everything else.
        logprobs: One per new token, if asked for.
        prompt_logprobs: Those computed in this step, in order, if asked for. The first prompt
            token has none and no entry.
        num_cached_tokens: Prompt tokens taken from the prefix cache, on first scheduling.
        timings: With the first token and the last.
        error: Message for ``FinishReason.ERROR``.
        is_overdue: That error is that it waited too long for its start.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    num_cached_tokens: int = 0
    timings: RequestTimings | None = None
    error: str | None = None
    is_overdue: bool = False


# The two records below are for nobody to change, but they are not frozen: one of each is made for
# each streamed token, and Python takes 2.1 microseconds to make a frozen one and 0.3 to make this.
@dataclass(slots=True)
class ChoiceOutput:
    """A piece of one choice (in a stream) or the whole of it.

    Attributes:
        index: Which of the ``n`` choices.
        text: New text; never ends inside a character or in the start of a stop string.
        token_ids: New token ids. They can run ahead of ``text``, which may be held back.
        logprobs: One per token id, or ``None`` if not asked for.
        finish_reason: Set once, in the last piece.
        stop_reason: The stop string or stop token id that ended it, if one did.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class RequestOutput:
    """A piece of the answer to one request (in a stream) or all of it.

    Attributes:
        choices: Streaming: those that changed, usually one. Whole: all, by index.
        prompt_logprobs: All of them at once, one per prompt token; ``None`` for the first token.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        num_output_tokens: Tokens of all choices so far.
        finished: Every choice has its finish reason.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    choices: tuple[ChoiceOutput, ...]
    finished: bool
    seed: int
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    timings: RequestTimings | None = None


@dataclass(frozen=True, slots=True)
class WaitReason:
    """What keeps a request from running at the moment.

    Attributes:
        limit: ``slots``, ``token_budget``, ``kv_blocks``, ``tenant``, ``head_of_line`` (blocks are
            kept for the first in the line), ``batch`` (static and dynamic batching),
            ``target_itl`` (more would decode too slowly), ``delay_factor`` (it waits for company),
            or ``next_step``: nothing does.
        have, need: What there is of it and what the request needs: free slots, tokens, available
            blocks, free places of the tenant, running requests; for ``head_of_line`` how often
            the first one was passed, and how often it may be.
        text: The same as a sentence.
    """

    limit: str
    have: int
    need: int
    text: str


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """Something that happened to a request.

    Attributes:
        at_s: Seconds after its arrival.
        kind: ``queued``, ``blocked``, ``scheduled``, ``preempted``, ``resumed``, ``first_token`` or
            ``finished``.
        details: What else there is to say, by name.
    """

    at_s: float
    kind: str
    details: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class RequestReport:
    """What the scheduler knows of a choice that lives or has ended lately.

    Attributes:
        request_id: Of the choice in the engine core.
        state: ``waiting``, ``running``, ``preempted`` or ``finished``.
        arrival_s: On the engine's monotonic clock, in seconds.
        num_computed_tokens: Leading tokens whose KV is in the cache; 0 unless it runs.
        num_blocks: KV blocks that it holds.
        num_free_blocks: Blocks available to whoever asks first.
        position: Place in the line, from 0; ``None`` if it does not wait or many are before it.
        wait: Why it waits; ``None`` if it does not.
        finish_reason: Why it ended; ``None`` if it has not.
        events: In order; of very many, the first and the last. Only if asked for by id.
    """

    request_id: str
    state: str
    tenant: str
    priority: int
    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_computed_tokens: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    position: int | None = None
    wait: WaitReason | None = None
    finish_reason: str | None = None
    events: tuple[RequestEvent, ...] = ()
