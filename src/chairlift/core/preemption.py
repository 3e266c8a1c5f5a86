"""Who loses slot and blocks to a more urgent request."""

from __future__ import annotations

from collections.abc import Sequence

from chairlift.core.kv_cache_manager import KVCacheManager
from chairlift.core.policies.base import SchedulingPolicy
from chairlift.core.request import Request


def num_to_displace(
    request: Request,
    running: Sequence[Request],
    policy: SchedulingPolicy,
    kv_cache: KVCacheManager,
    *,
    needs_slot: bool,
    num_missing_blocks: int,
) -> int:
    """How many running requests, from the last in order, must give way for ``request`` to start.

    Only those that the policy lets give way count, and no more than needed. 0 if nothing is
    missing, or if all of them together would not be enough: nobody is preempted for nothing.

    Args:
        running: In the policy's order.
        needs_slot: No slot is free.
        num_missing_blocks: Blocks that are not available yet; 0 or less: none.
    """
    num_victims = num_freed = 0
    for victim in reversed(running):
        if num_freed >= num_missing_blocks and (num_victims or not needs_slot):
            return num_victims
        if not policy.gives_way(request, victim):
            return 0
        num_victims += 1
        num_freed += kv_cache.num_own_blocks(victim)
    return num_victims if num_freed >= num_missing_blocks else 0
