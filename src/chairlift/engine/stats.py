"""What the engine counts and measures, as plain numbers; formats are for those who publish them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from chairlift.core.scheduler_stats import SchedulerStats

_NS_PER_S = 1e9

FIRST_TOKEN_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
INTER_TOKEN_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY_BOUNDS_S = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
)  # fmt: skip
TOKEN_BOUNDS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where the time of the steps went: sums since the start, in seconds.

    Attributes:
        num_steps: Steps that computed something.
        schedule_s: Planning.
        swap_s: Copying KV blocks between the pool and the second tier.
        build_s: Making the flat batch and writing back sampled tokens.
        forward_s: The model up to its last hidden states.
        logits_s: The output head.
        sample_s: From logits to tokens and logprobs.
        update_s: Accounting for the result.
        output_s: From step outputs to text.
    """

    num_steps: int = 0
    schedule_s: float = 0.0
    build_s: float = 0.0
    forward_s: float = 0.0
    logits_s: float = 0.0
    sample_s: float = 0.0
    update_s: float = 0.0
    output_s: float = 0.0
    swap_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Sum of the parts."""
        return (
            self.schedule_s
            + self.build_s
            + self.forward_s
            + self.logits_s
            + self.sample_s
            + self.update_s
            + self.output_s
            + self.swap_s
        )

    def since(self, before: StepTimes) -> StepTimes:
        """What was added after ``before`` was taken."""
        return StepTimes(
            self.num_steps - before.num_steps,
            self.schedule_s - before.schedule_s,
            self.build_s - before.build_s,
            self.forward_s - before.forward_s,
            self.logits_s - before.logits_s,
            self.sample_s - before.sample_s,
            self.update_s - before.update_s,
            self.output_s - before.output_s,
            self.swap_s - before.swap_s,
        )


@dataclass(frozen=True, slots=True)
class CoreStats:
    """State of the engine core after a step; crosses from the engine process to the front."""

    scheduler: SchedulerStats
    step_times: StepTimes


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Observations sorted into buckets.

    Attributes:
        bounds: Upper bounds of the buckets, inclusive, ascending.
        counts: Observations per bucket (not cumulative); one more than ``bounds``, the last for
            those above every bound.
        sum: Of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


class Histogram:
    """Counts observations by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add an observation, or several equal ones."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def snapshot(self) -> HistogramSnapshot:
        """The state now."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._sum)


@dataclass(slots=True)
class RequestObservations:
    """What the output side observes of requests; written by the output processor alone.

    Times are taken on the engine's monotonic clock, with the moment a step ended as the moment of
    its tokens:

    * time to first token = first token - arrival
    * inter-token latency = gap between the steps of two tokens; none for a one-token answer, and
      0 for further tokens of one step
    * end-to-end latency = last token - arrival, of choices that ended by themselves
    * queue time = first scheduled - arrival
    """

    time_to_first_token_s: Histogram = field(
        default_factory=lambda: Histogram(FIRST_TOKEN_BOUNDS_S)
    )
    inter_token_latency_s: Histogram = field(
        default_factory=lambda: Histogram(INTER_TOKEN_BOUNDS_S)
    )
    e2e_latency_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_S))
    queue_time_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    requests_finished: dict[str, int] = field(default_factory=dict)
    num_overdue: int = 0
    output_ns: int = 0

    def count_finished(self, finish_reason: str) -> None:
        """Count a choice that ended."""
        self.requests_finished[finish_reason] = self.requests_finished.get(finish_reason, 0) + 1


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges and counters of one moment; ``total`` and the histograms count from the start.

    Attributes:
        num_running: Choices in the running set.
        num_waiting: Choices accepted that are not running: not yet seen by the scheduler, waiting,
            or preempted.
        num_live_blocks: KV blocks held by requests.
        num_cached_blocks: KV blocks held by nobody whose content the prefix cache can still use.
        num_free_blocks: KV blocks without content.
        num_swap_blocks: KV blocks that the second tier holds when it is full.
        num_swapped_blocks: KV blocks of preempted requests that are in it.
        requests_finished: Choices that ended, by finish reason.
        num_overdue_total: Choices that were ended because they waited too long for their start.
        start_delay_s: How long a request that came now would wait for its start at the end of the
            line, as foretold; 0 without a target.
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
    requests_finished: Mapping[str, int]
    num_overdue_total: int
    start_delay_s: float
    time_to_first_token_s: HistogramSnapshot
    inter_token_latency_s: HistogramSnapshot
    e2e_latency_s: HistogramSnapshot
    queue_time_s: HistogramSnapshot
    prompt_tokens: HistogramSnapshot
    generation_tokens: HistogramSnapshot
    step_times: StepTimes
    num_swap_blocks: int = 0
    num_swapped_blocks: int = 0
    swapped_out_blocks_total: int = 0
    swapped_in_blocks_total: int = 0

    @property
    def swap_usage(self) -> float:
        """Share of the second tier that is in use, from 0 to 1."""
        return self.num_swapped_blocks / self.num_swap_blocks if self.num_swap_blocks else 0.0

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV pool that requests hold, from 0 to 1."""
        total = self.num_live_blocks + self.num_cached_blocks + self.num_free_blocks
        return self.num_live_blocks / total if total else 0.0


def engine_stats(core: CoreStats, observed: RequestObservations, num_live: int) -> EngineStats:
    """Put together what the core and the output side know.

    Args:
        num_live: Choices accepted and not ended.
    """
    scheduler, times = core.scheduler, core.step_times
    return EngineStats(
        num_running=scheduler.num_running,
        num_waiting=max(0, num_live - scheduler.num_running),
        num_live_blocks=scheduler.num_live_blocks,
        num_cached_blocks=scheduler.num_cached_blocks,
        num_free_blocks=scheduler.num_free_blocks,
        num_preemptions_total=scheduler.num_preemptions_total,
        prompt_tokens_total=scheduler.prompt_tokens_total,
        generation_tokens_total=scheduler.generation_tokens_total,
        prefix_cache_queried_tokens=scheduler.prefix_cache_queried_tokens,
        prefix_cache_hit_tokens=scheduler.prefix_cache_hit_tokens,
        requests_finished=dict(observed.requests_finished),
        num_overdue_total=observed.num_overdue,
        start_delay_s=scheduler.start_delays.at_end.start_s,
        time_to_first_token_s=observed.time_to_first_token_s.snapshot(),
        inter_token_latency_s=observed.inter_token_latency_s.snapshot(),
        e2e_latency_s=observed.e2e_latency_s.snapshot(),
        queue_time_s=observed.queue_time_s.snapshot(),
        prompt_tokens=observed.prompt_tokens.snapshot(),
        generation_tokens=observed.generation_tokens.snapshot(),
        step_times=StepTimes(
            times.num_steps,
            times.schedule_s,
            times.build_s,
            times.forward_s,
            times.logits_s,
            times.sample_s,
            times.update_s,
            observed.output_ns / _NS_PER_S,
            times.swap_s,
        ),
        num_swap_blocks=scheduler.num_swap_blocks,
        num_swapped_blocks=scheduler.num_swapped_blocks,
        swapped_out_blocks_total=scheduler.swapped_out_blocks_total,
        swapped_in_blocks_total=scheduler.swapped_in_blocks_total,
    )
