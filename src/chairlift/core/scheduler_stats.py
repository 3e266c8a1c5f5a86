"""What the scheduler says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """What the scheduler holds now, and what it has done since the start (``total`` and tokens).

    Preempted requests count as waiting.
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
