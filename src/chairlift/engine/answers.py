"""Answers being put together: what each request's choices have brought so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chairlift.engine.choice_text import ChoiceText
from chairlift.inputs import GenerateRequest
from chairlift.outputs import (
    ChoiceOutput,
    FinishReason,
    RequestOutput,
    RequestTimings,
    StepOutput,
    TokenLogprob,
)
from chairlift.tokenization.tokenizer import Tokenizer


class Choice:
    """What one choice has brought since it was last taken out, and how it ended.

    Text is assembled as tokens come where somebody waits for it or a stop string may end the
    choice, and otherwise once, at the end: the text is the same.

    Attributes:
        key: Of the answer it belongs to.
        core_id: The choice's id in the engine core.
        last_token_s: When its last token came; 0.0 before the first.
        num_tokens: Output tokens so far.
    """

    __slots__ = (
        "_is_end_taken",
        "_logprobs",
        "_push_one",
        "_text",
        "_texts",
        "_token_ids",
        "_tokenizer",
        "answer",
        "core_id",
        "finish_reason",
        "index",
        "key",
        "last_token_s",
        "num_tokens",
        "stop_reason",
    )

    def __init__(
        self, answer: Answer, key: str, index: int, core_id: str, tokenizer: Tokenizer
    ) -> None:
        self.answer = answer
        self.key = key
        self.index = index
        self.core_id = core_id
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.last_token_s = 0.0
        self.num_tokens = 0
        self._tokenizer = tokenizer
        params = answer.request.sampling_params
        self._text = (
            ChoiceText(tokenizer, answer.request) if answer.is_streamed or params.stop else None
        )
        # The short way for what most tokens of most streams are: one, with nothing to it.
        self._push_one = (
            self._text.push_one if self._text is not None and params.logprobs is None else None
        )
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._is_end_taken = False
        self._logprobs: list[TokenLogprob] | None = None if params.logprobs is None else []

    @property
    def has_news(self) -> bool:
        """Something came that was not taken out yet."""
        if self._token_ids:
            return True
        return self.finish_reason is not None and not self._is_end_taken

    def accept(self, output: StepOutput) -> None:
        """Take in the tokens of a step, up to the one that completes a stop string."""
        token_ids = output.token_ids
        num_taken = len(token_ids)
        if num_taken == 1 and output.finish_reason is None and self._push_one is not None:
            self._texts.append(self._push_one(token_ids[0]))
            self._token_ids.append(token_ids[0])
            self.num_tokens += 1
            return
        if self._text is not None and token_ids:
            visible = self._visible(token_ids, output.finish_reason)
            text, num_visible_taken = self._text.push(visible)
            if self._text.matched_stop is not None:
                num_taken = num_visible_taken
            if text:
                self._texts.append(text)
        self.num_tokens += num_taken
        self._token_ids += token_ids[:num_taken]
        if self._logprobs is not None:
            self._logprobs += output.logprobs[:num_taken]
        self._end(output)

    def take(self) -> ChoiceOutput:
        """Hand out what came since the last time."""
        if self.finish_reason is not None:
            self._is_end_taken = True
            if self._text is None:
                self._assemble_at_end()
        piece = ChoiceOutput(
            self.index,
            "".join(self._texts),
            tuple(self._token_ids),
            None if self._logprobs is None else tuple(self._logprobs),
            self.finish_reason,
            self.stop_reason,
        )
        self._texts = []
        self._token_ids = []
        if self._logprobs is not None:
            self._logprobs = []
        return piece

    def _visible(
        self, token_ids: tuple[int, ...], finish_reason: FinishReason | None
    ) -> tuple[int, ...]:
        """Tokens that belong in the text: the token that ended the request does not."""
        return token_ids[:-1] if finish_reason is FinishReason.STOP else token_ids

    def _end(self, output: StepOutput) -> None:
        """Set the finish reason, if the choice has ended; a stop string comes before all others."""
        if self._text is not None:
            if output.finish_reason is not None:
                rest = self._text.finish()
                if rest:
                    self._texts.append(rest)
            if self._text.matched_stop is not None:
                self.finish_reason = FinishReason.STOP
                self.stop_reason = self._text.matched_stop
                return
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason

    def _assemble_at_end(self) -> None:
        text = ChoiceText(self._tokenizer, self.answer.request)
        visible = self._visible(tuple(self._token_ids), self.finish_reason)
        self._texts = [text.push(visible)[0], text.finish()]


class Answer:
    """All choices of one request.

    Attributes:
        error: Why the request failed, if it did.
        overdue_s: How long it had waited when it was ended for that; 0.0: it was not.
    """

    __slots__ = (
        "_num_cached_tokens",
        "_prompt_logprobs",
        "_timings",
        "choices",
        "error",
        "is_streamed",
        "overdue_s",
        "request",
    )

    def __init__(
        self,
        key: str,
        request: GenerateRequest,
        core_ids: Sequence[str],
        tokenizer: Tokenizer,
        *,
        is_streamed: bool,
    ) -> None:
        self.request = request
        self.is_streamed = is_streamed
        self.choices = [Choice(self, key, i, id_, tokenizer) for i, id_ in enumerate(core_ids)]
        self.error: str | None = None
        self.overdue_s = 0.0
        self._num_cached_tokens = 0
        self._timings: RequestTimings | None = None
        wants_scores = request.sampling_params.prompt_logprobs is not None
        self._prompt_logprobs: list[TokenLogprob | None] | None = [None] if wants_scores else None

    @property
    def is_finished(self) -> bool:
        """Every choice has ended."""
        return None not in [choice.finish_reason for choice in self.choices]

    @property
    def scheduled_s(self) -> float:
        """When the first choice got its first tokens in a step; 0.0 while that is not known."""
        return 0.0 if self._timings is None else self._timings.scheduled_s

    def note(self, output: StepOutput) -> None:
        """Take in what a step says about the request rather than about a choice's tokens."""
        if output.num_cached_tokens > self._num_cached_tokens:
            self._num_cached_tokens = output.num_cached_tokens
        if output.prompt_logprobs and self._prompt_logprobs is not None:
            self._prompt_logprobs += output.prompt_logprobs
        if output.timings is not None:
            self._timings = _joined(self._timings, output.timings)

    def note_end(self, now_s: float) -> None:
        """A stop string ended a choice at this time."""
        if self._timings is not None:
            self._timings = replace(self._timings, last_token_s=now_s)

    def take(self) -> RequestOutput:
        """Everything new since the last time; of a finished answer that is not streamed, all."""
        choices = self.choices
        request = self.request
        if len(choices) == 1:  # the usual case, at every token of a stream
            choice = choices[0]
            pieces: tuple[ChoiceOutput, ...] = (choice.take(),) if choice.has_news else ()
            is_finished = choice.finish_reason is not None
            num_tokens = choice.num_tokens
        else:
            pieces = tuple([choice.take() for choice in choices if choice.has_news])
            is_finished = self.is_finished
            num_tokens = sum([choice.num_tokens for choice in choices])
        return RequestOutput(
            request.request_id,
            request.prompt_token_ids,
            pieces,
            is_finished,
            request.sampling_params.seed or 0,
            self._take_prompt_logprobs() if self._prompt_logprobs else None,
            self._num_cached_tokens,
            num_tokens,
            self._timings,
        )

    def _take_prompt_logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        """All of them, once, as soon as they are there."""
        scores = self._prompt_logprobs
        if scores is None or len(scores) < len(self.request.prompt_token_ids):
            return None
        self._prompt_logprobs = None
        return tuple(scores)


def _joined(first: RequestTimings | None, second: RequestTimings) -> RequestTimings:
    """Timings of a request out of those of its choices: earliest starts, latest end."""
    if first is None:
        return second
    return RequestTimings(
        queued_s=first.queued_s,
        scheduled_s=min(first.scheduled_s, second.scheduled_s),
        first_token_s=min(first.first_token_s or second.first_token_s, second.first_token_s),
        last_token_s=max(first.last_token_s, second.last_token_s),
    )
