"""Finding steps that are certainly alike, so that they can be run together.

From a step in which every running request gets its next token, the following steps are the same
step over again, with everybody one token longer, until somebody ends, boards or is preempted. The
functions here say for how long that is certain.
"""

from __future__ import annotations

from collections.abc import Mapping

from chairlift.core.scheduler_output import ScheduledRequest, SchedulerOutput


def total_length(plan: SchedulerOutput) -> int:
    """Tokens of all requests of a step together, those computed in it included."""
    return sum(computed + scheduled for _, computed, scheduled, *_ in plan.scheduled)


def steps_until_one_ends(plan: SchedulerOutput, final_lengths: Mapping[str, int]) -> int:
    """Steps, this one included, up to and with the first in which a request ends.

    Args:
        plan: Every row yields a token.
        final_lengths: Prompt and output tokens with which each request ends, by its id.
    """
    return min(
        final_lengths[request_id] - computed - scheduled
        for request_id, computed, scheduled, *_ in plan.scheduled
    )


def steps_with_blocks(
    plan: SchedulerOutput, num_steps: int, num_available: int, block_size: int
) -> int:
    """The number of steps, at most ``num_steps``, in which nobody lacks a block to grow into.

    A lower bound: at least 1, and at least half of what is possible.

    Args:
        num_available: Blocks that nobody holds once this step is planned.
    """
    while num_steps > 1:
        most = len(plan.scheduled) * -(-num_steps // block_size)
        if most <= num_available or _num_blocks(plan, num_steps, block_size) <= num_available:
            return num_steps
        num_steps //= 2
    return 1


def _num_blocks(plan: SchedulerOutput, num_steps: int, block_size: int) -> int:
    """Blocks that the requests need more after so many steps than for this one."""
    return sum(
        -(-(computed + scheduled + num_steps - 1) // block_size)
        - -(-(computed + scheduled) // block_size)
        for _, computed, scheduled, *_ in plan.scheduled
    )


def is_stuck(plan: SchedulerOutput, max_num_batched_tokens: int) -> bool:
    """Whoever waits was stopped by lack of blocks or by the batching mode, not by the budget.

    Then it stays stopped until somebody ends, since until then there are only fewer blocks.
    """
    return (
        not plan.preempted_request_ids
        and not any(row.replace_blocks for row in plan.scheduled)
        and sum(row.num_scheduled_tokens for row in plan.scheduled) < max_num_batched_tokens
    )


def lengthened(plan: SchedulerOutput, num_more_tokens: int) -> SchedulerOutput:
    """The plan of a step and of so many after it, as one: each row computes so many tokens more."""
    rows = [
        ScheduledRequest(request_id, computed, scheduled + num_more_tokens, blocks, replace, yields)
        for request_id, computed, scheduled, blocks, replace, yields in plan.scheduled
    ]
    return SchedulerOutput(
        plan.step,
        rows,
        plan.new_requests,
        plan.finished_request_ids,
        plan.preempted_request_ids,
    )
