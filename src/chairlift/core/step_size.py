"""How much there is to compute in a step: what its time depends on."""

from __future__ import annotations

from typing import NamedTuple

from chairlift.core.scheduler_output import SchedulerOutput


class StepSize(NamedTuple):
    """What is in a step.

    Attributes:
        num_tokens: Tokens computed.
        num_context_tokens: Pairs of a computed token and one it attends to.
        num_seqs: Requests that take part.
        num_head_rows: Requests that sample a token.
    """

    num_tokens: int
    num_context_tokens: int
    num_seqs: int
    num_head_rows: int


def step_size(plan: SchedulerOutput) -> StepSize:
    """Count what is in a planned step."""
    num_tokens = num_context_tokens = num_head_rows = 0
    for _, num_computed, num_scheduled, _, _, yields_token in plan.scheduled:
        num_tokens += num_scheduled
        num_context_tokens += context_tokens(num_computed, num_scheduled)
        num_head_rows += yields_token
    return StepSize(num_tokens, num_context_tokens, len(plan.scheduled), num_head_rows)


def context_tokens(num_computed: int, num_scheduled: int) -> int:
    """Pairs of a scheduled token and a token it attends to, itself and those before it."""
    return num_scheduled * num_computed + num_scheduled * (num_scheduled + 1) // 2
