"""How much a step may hold so that tokens keep coming in time (``target_itl``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.request import Request
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize

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
        decodes = StepSize(num_decodes, num_context_tokens, num_decodes, num_decodes)
        # One prompt, and its first output token, come on top.
        left_s = target_s - model.seconds(decodes) - model.sequence_s - model.head_row_s
        num_computed = max((r.num_computed_tokens for r in prefilling.values()), default=0)
        prompt_token_s = model.token_s + model.context_token_s * num_computed
        num_prompt_tokens = _prompt_tokens(left_s, prompt_token_s, model.context_token_s / 2)
        each_s = model.decode_seconds(1, num_context_tokens // num_decodes) - model.step_s
        spared_s = target_s - model.step_s - MIN_PREFILL_TOKENS * prompt_token_s
        num_seqs = int(spared_s / each_s) if each_s > 0.0 else self._full.num_seqs
        return self._bounded(
            num_decodes + max(num_prompt_tokens, MIN_PREFILL_TOKENS), max(num_seqs, len(running))
        )

    def _bounded(self, num_tokens: int, num_seqs: int) -> StepLimits:
        full = self._full
        return StepLimits(min(num_tokens, full.num_tokens), min(max(num_seqs, 1), full.num_seqs))


def _prompt_tokens(left_s: float, linear_s: float, square_s: float) -> int:
    """The most tokens p of a prompt for which ``linear_s * p + square_s * p² <= left_s``."""
    if left_s <= 0.0 or (linear_s == 0.0 and square_s == 0.0):
        return 0
    # The root, in the form that does not divide by 0 without the square.
    root = 2 * left_s / (linear_s + math.sqrt(linear_s * linear_s + 4 * square_s * left_s))
    return int(min(root, 1e9))
