"""How prompts share the tokens of a step, so that a short one behind a long one starts early."""

from __future__ import annotations

from collections.abc import Mapping

from chairlift.core.request import Request
from chairlift.core.scheduler_output import ScheduledRequest

_MIN_SHARE = 16
"""Tokens that a prompt gets at least while it shares the budget: a chunk has a fixed cost."""

_MAX_SHARING = 4
"""Prompts that share the budget of one step; with more, each would take too many steps."""


def prefill_share(budget: int, num_running: int, num_prefilling: int, num_boarding: int) -> int:
    """Most tokens that one prompt gets at first, while others want theirs.

    Args:
        budget: Tokens of the step.
        num_prefilling: Of the running requests, those that are not done with their prompt.
        num_boarding: Requests in the line for which a slot is free.

    Returns:
        ``budget`` if there is nobody to share with.
    """
    num_prompts = num_prefilling + num_boarding
    if num_prompts <= 1:
        return budget
    num_decodes = num_running - num_prefilling
    return max((budget - num_decodes) // min(num_prompts, _MAX_SHARING), _MIN_SHARE)


def hand_out_rest(
    scheduled: list[ScheduledRequest], prefilling: Mapping[str, Request], budget: int
) -> None:
    """Give the tokens that nobody else wanted to the prompts held to their share, in order.

    Changes the rows of ``scheduled`` that get more.
    """
    for index, row in enumerate(scheduled):
        request = prefilling.get(row.request_id)
        if request is None:
            continue
        end = row.num_computed_tokens + row.num_scheduled_tokens
        num_more = min(request.num_tokens - end, budget)
        if num_more > 0:
            budget -= num_more
            is_whole = end + num_more == request.num_tokens
            scheduled[index] = row._replace(
                num_scheduled_tokens=row.num_scheduled_tokens + num_more,
                yields_token=is_whole and not request.only_scores_prompt,
            )
