"""What the scheduler says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chairlift.core.start_delays import NO_DELAYS, StartDelays

if TYPE_CHECKING:  # the front imports these numbers, but not what they are taken from
    from chairlift.core.accounts import TokenAccounts
    from chairlift.core.kv_cache_manager import KVCacheManager


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """What the scheduler holds now, and what it has done since the start (``total`` and tokens).

    Preempted requests count as waiting.

    Attributes:
        prefix_cache_recovered_tokens: Found in the pool by requests that came back.
        num_swap_blocks: Blocks that the second tier holds when it is full.
        num_swapped_blocks: Blocks that are in it.
        swapped_tokens_total: Found in the second tier by requests that came back.
        start_delays: How long requests that came now would wait for their start, as foretold.
    """

    num_running: int
    num_waiting: int
    num_live_blocks: int
    num_cached_blocks: int
    num_free_blocks: int
    num_preemptions_total: int
    prompt_tokens_total: int
    generation_tokens_total: int
    prefix_cache_queried_tokens: int
    prefix_cache_hit_tokens: int
    prefix_cache_recovered_tokens: int
    num_swap_blocks: int = 0
    num_swapped_blocks: int = 0
    swapped_out_blocks_total: int = 0
    swapped_in_blocks_total: int = 0
    swapped_tokens_total: int = 0
    start_delays: StartDelays = NO_DELAYS


def scheduler_stats(
    num_running: int,
    num_waiting: int,
    num_preemptions: int,
    kv_cache: KVCacheManager,
    accounts: TokenAccounts,
    start_delays: StartDelays,
) -> SchedulerStats:
    """Put together what the scheduler and its parts have counted."""
    pool, prefix = kv_cache.pool, kv_cache.prefix_counts
    return SchedulerStats(
        num_running=num_running,
        num_waiting=num_waiting,
        num_live_blocks=pool.num_live,
        num_cached_blocks=pool.num_cached,
        num_free_blocks=pool.num_free,
        num_preemptions_total=num_preemptions,
        prompt_tokens_total=accounts.num_prompt_tokens,
        generation_tokens_total=accounts.num_generation_tokens,
        prefix_cache_queried_tokens=prefix.num_queried_tokens,
        prefix_cache_hit_tokens=prefix.num_hit_tokens,
        prefix_cache_recovered_tokens=prefix.num_recovered_tokens,
        num_swap_blocks=kv_cache.left_behind.num_slots,
        num_swapped_blocks=kv_cache.left_behind.num_used_slots,
        swapped_out_blocks_total=kv_cache.num_swapped_out,
        swapped_in_blocks_total=kv_cache.num_swapped_in,
        swapped_tokens_total=prefix.num_swapped_tokens,
        start_delays=start_delays,
    )
