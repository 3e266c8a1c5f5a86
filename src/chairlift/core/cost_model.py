"""How long a step takes, from what is in it.

    seconds = a + b * tokens + b' * (tokens above a knee) + c * context tokens
              + d * sequences + e * head rows

``tokens`` are those computed in the step; ``context tokens`` the pairs of a computed token and one
it attends to; ``sequences`` the requests that take part; ``head rows`` those of them that sample.
Up to the knee, reading the weights hides some of what computing tokens costs; a model may do
without one. A step that only decodes n requests, up to the knee, thus costs
a + (b + d + e) n + c (sum of their lengths).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from chairlift.core.step_size import StepSize
from chairlift.errors import ConfigError


class StepRecord(NamedTuple):
    """A step that was run, and the seconds it took."""

    size: StepSize
    seconds: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Coefficients in seconds, each at least 0.

    Attributes:
        step_s: Of every step, whatever is in it (for a small batch, reading the weights).
        token_s: Of each token computed.
        context_token_s: Of each token that one computed attends to.
        sequence_s: Of each request that takes part.
        head_row_s: Of each request that samples.
        late_token_s: On top, of each token above the first ``knee_tokens`` of a step.
        knee_tokens: A number of tokens, not a time.
    """

    step_s: float
    token_s: float = 0.0
    context_token_s: float = 0.0
    sequence_s: float = 0.0
    head_row_s: float = 0.0
    late_token_s: float = 0.0
    knee_tokens: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value < float("inf"):
                raise ConfigError(f"{field.name} must be at least 0 and finite, got {value!r}")

    @property
    def linear(self) -> tuple[float, float, float, float, float]:
        """The coefficients of a model without a knee, in the order of the fields."""
        return (
            self.step_s,
            self.token_s,
            self.context_token_s,
            self.sequence_s,
            self.head_row_s,
        )

    def scaled(self, factor: float) -> CostModel:
        """The model of a machine on which every step takes ``factor`` times as long."""
        values: list[float] = [factor * value for value in (*self.linear, self.late_token_s)]
        return dataclasses.replace(CostModel(*values), knee_tokens=self.knee_tokens)

    def seconds(self, size: StepSize) -> float:
        """How long a step takes."""
        num_tokens, num_context_tokens, num_seqs, num_head_rows = size
        return (
            self._tokens_s(num_tokens)
            + self.context_token_s * num_context_tokens
            + self.sequence_s * num_seqs
            + self.head_row_s * num_head_rows
        )

    def _tokens_s(self, num_tokens: int) -> float:
        seconds = self.step_s + self.token_s * num_tokens
        if num_tokens > self.knee_tokens:
            seconds += self.late_token_s * (num_tokens - self.knee_tokens)
        return seconds

    def decode_run(self, num_seqs: int, num_context_tokens: int) -> Iterator[float]:
        """Yield how long each step takes while the same requests get one token each; no end.

        Args:
            num_context_tokens: Of the first step; each further one has ``num_seqs`` more.
        """
        # The sums in the order of :meth:`seconds`, so that the results are equal to the last bit.
        before = self._tokens_s(num_seqs)
        context_token_s = self.context_token_s
        sequences_s, heads_s = self.sequence_s * num_seqs, self.head_row_s * num_seqs
        for context in count(num_context_tokens, num_seqs):
            yield before + context_token_s * context + sequences_s + heads_s
