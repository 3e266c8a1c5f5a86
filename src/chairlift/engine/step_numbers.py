"""What there is to write down about a step besides its size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.engine.stats import CoreStats

PARTS = ("schedule", "swap", "build", "forward", "logits", "sample", "update")
"""Parts of a step, in the order they follow one another."""


class StepNumbers:
    """Turns an engine's running sums into the numbers of its last step.

    Args:
        stats: Gives the engine's numbers of the moment.
    """

    def __init__(self, stats: Callable[[], CoreStats]) -> None:
        self._stats = stats
        self._before = self._sums()

    def parts_s(self) -> Mapping[str, float]:
        """Seconds of each of ``PARTS`` since the last time; to be called once a step."""
        before, self._before = self._before, self._sums()
        return {
            part: round(now - then, 7)
            for part, now, then in zip(PARTS, self._before, before, strict=True)
        }

    def counts(self, plan: SchedulerOutput) -> Mapping[str, int]:
        """Tokens by kind, and requests and KV blocks after the step."""
        scheduler = self._stats().scheduler
        num_decode_tokens = sum(
            row.num_scheduled_tokens == 1 and row.yields_token for row in plan.scheduled
        )
        num_tokens = sum(row.num_scheduled_tokens for row in plan.scheduled)
        return {
            "num_decode_tokens": num_decode_tokens,
            "num_prefill_tokens": num_tokens - num_decode_tokens,
            "num_preempted": len(plan.preempted_request_ids),
            "num_swapped_out_blocks": len(plan.swap_out),
            "num_swapped_in_blocks": len(plan.swap_in),
            "num_running": scheduler.num_running,
            "num_waiting": scheduler.num_waiting,
            "num_live_blocks": scheduler.num_live_blocks,
            "num_cached_blocks": scheduler.num_cached_blocks,
            "num_free_blocks": scheduler.num_free_blocks,
        }

    def _sums(self) -> tuple[float, ...]:
        times = self._stats().step_times
        return tuple(getattr(times, f"{part}_s") for part in PARTS)
