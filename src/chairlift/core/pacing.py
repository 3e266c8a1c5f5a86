"""How much a step may hold so that tokens keep coming in time (``target_itl``)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.request import Request
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize, context_tokens

MIN_PREFILL_TOKENS = 16
"""Prompt tokens that a step has room for whatever the target: a prompt of n tokens is read in at
most n / 16 steps in which it has its turn."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What the next step may hold: tokens, and requests running."""

    num_tokens: int
    num_seqs: int


class Pacing:
    """Finds the largest limits with which a step is foretold to stay within the target.

    While nobody decodes, nobody waits for a next token, and the configured limits hold. While
    somebody does, prompts get what the target leaves besides the decodes, at least
    ``MIN_PREFILL_TOKENS``, and no more requests start than could all decode within the target.
    Those that run are not stopped, so the target is missed when their contexts outgrow it.

    Args:
        cost: Says what steps take; before it can, prompts get the least.
    """

    def __init__(self, config: SchedulerConfig, cost: StepCost) -> None:
        self._config = config
        self._cost = cost
        self._full = StepLimits(config.max_num_batched_tokens, config.max_num_seqs)
        self.limits = self._full

    def plan(self, running: Sequence[Request], prefilling: Mapping[str, Request]) -> StepLimits:
        """Set ``limits`` for the step about to be planned, and return them."""
        num_decodes = len(running) - len(prefilling)
        self.limits = self._full
        if self._config.target_itl_s > 0.0 and num_decodes > 0:
            model = self._cost.model()
            if model is None:
                self.limits = self._bounded(num_decodes + MIN_PREFILL_TOKENS, self._full.num_seqs)
            else:
                self.limits = self._within_target(model, running, prefilling)
        return self.limits

    def _within_target(
        self, model: CostModel, running: Sequence[Request], prefilling: Mapping[str, Request]
    ) -> StepLimits:
        decoding = [len(r.token_ids) for r in running if r.request_id not in prefilling]
        num_decodes, num_context_tokens = len(decoding), sum(decoding)
        target_s = self._config.target_itl_s / self._cost.spread
        num_computed = max((r.num_computed_tokens for r in prefilling.values()), default=0)

        def with_prompt_s(num_prompt_tokens: int) -> float:
            # One prompt, and its first output token, come on top of the decodes.
            pairs = num_context_tokens + context_tokens(num_computed, num_prompt_tokens)
            num_rows = num_decodes + 1
            return model.seconds(
                StepSize(num_decodes + num_prompt_tokens, pairs, num_rows, num_rows)
            )

        mean_context = num_context_tokens // num_decodes

        def least_with_decodes_s(num_seqs: int) -> float:
            num_tokens, pairs = num_seqs + MIN_PREFILL_TOKENS, num_seqs * mean_context
            pairs += context_tokens(num_computed, MIN_PREFILL_TOKENS)
            return model.seconds(StepSize(num_tokens, pairs, num_seqs, num_seqs))

        num_prompt_tokens = _most(self._full.num_tokens, target_s, with_prompt_s)
        num_seqs = _most(self._full.num_seqs, target_s, least_with_decodes_s)
        return self._bounded(
            num_decodes + max(num_prompt_tokens, MIN_PREFILL_TOKENS), max(num_seqs, len(running))
        )

    def _bounded(self, num_tokens: int, num_seqs: int) -> StepLimits:
        full = self._full
        return StepLimits(min(num_tokens, full.num_tokens), min(max(num_seqs, 1), full.num_seqs))


def _most(limit: int, target_s: float, seconds: Callable[[int], float]) -> int:
    """The largest number up to ``limit`` for which ``seconds``, which grows, is within a target."""
    return bisect_right(range(1, limit + 1), target_s, key=seconds)
