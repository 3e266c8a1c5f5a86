"""Histograms and what is put together from the two sides of the engine."""

from __future__ import annotations

import pytest

from chairlift.core.scheduler_stats import SchedulerStats
from chairlift.core.start_delays import StartDelay, StartDelays
from chairlift.engine.stats import (
    CoreStats,
    Histogram,
    RequestObservations,
    StepTimes,
    engine_stats,
)

SCHEDULER = SchedulerStats(
    num_running=2,
    num_waiting=1,
    num_live_blocks=3,
    num_cached_blocks=4,
    num_free_blocks=5,
    num_preemptions_total=6,
    prompt_tokens_total=7,
    generation_tokens_total=8,
    prefix_cache_queried_tokens=9,
    prefix_cache_hit_tokens=10,
    prefix_cache_recovered_tokens=11,
    start_delays=StartDelays(StartDelay(0.5, 0.1)),
)


def test_a_histogram_s_bounds_belong_to_the_bucket_below() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    histogram.observe(3.0, times=2)
    snapshot = histogram.snapshot()
    assert snapshot.counts == (2, 2, 3)
    assert (snapshot.count, snapshot.sum) == (7, 13.5)


def test_what_is_accepted_and_not_running_is_waiting() -> None:
    stats = engine_stats(CoreStats(SCHEDULER, StepTimes()), RequestObservations(), num_live=10)
    assert (stats.num_running, stats.num_waiting) == (2, 8)


def test_a_choice_that_ended_here_first_leaves_no_negative_gauge() -> None:
    stats = engine_stats(CoreStats(SCHEDULER, StepTimes()), RequestObservations(), num_live=1)
    assert stats.num_waiting == 0


def test_cache_usage_is_the_share_that_requests_hold() -> None:
    stats = engine_stats(CoreStats(SCHEDULER, StepTimes()), RequestObservations(), num_live=2)
    assert stats.kv_cache_usage == 0.25


def test_the_time_of_output_handling_joins_those_of_the_core() -> None:
    observed = RequestObservations()
    observed.output_ns = 2_000_000_000
    times = StepTimes(3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    stats = engine_stats(CoreStats(SCHEDULER, times), observed, num_live=2)
    assert stats.step_times == StepTimes(3, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 2.0)
    assert stats.step_times.total_s == 23.0


def test_step_times_between_two_moments_are_their_difference() -> None:
    before, after = StepTimes(1, 0.5, 1, 1, 1, 1, 1, 1), StepTimes(4, 2.0, 3, 4, 5, 6, 7, 8)
    assert after.since(before) == StepTimes(3, 1.5, 2, 3, 4, 5, 6, 7)


def test_a_snapshot_does_not_change_afterwards() -> None:
    observed = RequestObservations()
    stats = engine_stats(CoreStats(SCHEDULER, StepTimes()), observed, num_live=2)
    observed.count_finished("stop")
    observed.queue_time_s.observe(1.0)
    assert stats.requests_finished == {}
    assert stats.queue_time_s.sum == pytest.approx(0.0)
