"""The text of one choice: tokens in, text out, cut at the first stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chairlift.inputs import GenerateRequest
from chairlift.tokenization.detokenizer import IncrementalDetokenizer
from chairlift.tokenization.stop_strings import StopStringMatcher
from chairlift.tokenization.tokenizer import Tokenizer


class ChoiceText:
    """Joins the detokeniser and the search for stop strings.

    What it gives out never ends inside a character or in the start of a stop string, and all of it
    together is the same text however the tokens were cut into pieces.

    Stop strings are searched from the text of output token number ``min_tokens`` on: before that,
    nothing may end the request.

    Attributes:
        matched_stop: The stop string found; nothing is accepted after that.
        push_one: Takes one token and gives its text: a shorter way for choices without stop
            strings; ``None`` for others.
    """

    __slots__ = (
        "_detokenizer",
        "_matcher",
        "_num_tokens",
        "_num_unsearched",
        "matched_stop",
        "push_one",
    )

    def __init__(self, tokenizer: Tokenizer, request: GenerateRequest) -> None:
        params = request.sampling_params
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, request.prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        self._matcher = (
            StopStringMatcher(
                params.stop, include_stop_str_in_output=params.include_stop_str_in_output
            )
            if params.stop
            else None
        )
        self.push_one: Callable[[int], str] | None = None if params.stop else self._detokenizer.push
        self._num_unsearched = max(0, params.min_tokens - 1)
        self._num_tokens = 0
        self.matched_stop: str | None = None

    def push(self, token_ids: Sequence[int]) -> tuple[str, int]:
        """Take in output tokens.

        Returns:
            The text that can be given out now, and how many of the tokens were taken: all, unless
            a stop string was completed by one before the last.
        """
        if self._matcher is None:
            return self._push_unsearched(token_ids), len(token_ids)
        text = ""
        for count, token_id in enumerate(token_ids, start=1):
            self._num_tokens += 1
            delta = self._detokenizer.push(token_id)
            if self._num_tokens <= self._num_unsearched:
                text += delta
                continue
            safe, self.matched_stop = self._matcher.push(delta)
            text += safe
            if self.matched_stop is not None:
                return text, count
        return text, len(token_ids)

    def finish(self) -> str:
        """The rest of the text, once no more tokens come; "" after a stop string."""
        if self.matched_stop is not None:
            return ""
        rest = self._detokenizer.flush()
        if self._matcher is None or self._num_tokens <= self._num_unsearched:
            return rest
        safe, self.matched_stop = self._matcher.push(rest)
        return safe if self.matched_stop is not None else safe + self._matcher.flush()

    def _push_unsearched(self, token_ids: Sequence[int]) -> str:
        if len(token_ids) == 1:
            return self._detokenizer.push(token_ids[0])
        return self._detokenizer.push_all(token_ids)
