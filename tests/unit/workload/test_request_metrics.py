"""Metrics equal what is worked out by hand, and numpy's own percentiles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chairlift.workload.request_metrics import (
    RequestTimes,
    TokenGaps,
    summarise,
    summarise_requests,
)


def three_requests() -> RequestTimes:
    """Arrivals at 0, 1, 2; the last has one token."""
    return RequestTimes(
        arrival_s=np.array([0.0, 1.0, 2.0]),
        scheduled_s=np.array([0.0, 1.5, 4.0]),
        first_token_s=np.array([0.5, 2.0, 5.0]),
        last_token_s=np.array([2.5, 6.0, 5.0]),
        num_output_tokens=np.array([5, 3, 1]),
    )


def test_times_of_requests_are_those_worked_out_by_hand() -> None:
    times = three_requests()
    assert times.ttft_s.tolist() == [0.5, 1.0, 3.0]
    assert times.tpot_s[:2].tolist() == [0.5, 2.0]
    assert math.isnan(times.tpot_s[2])
    assert times.e2el_s.tolist() == [2.5, 5.0, 3.0]
    assert times.queue_s.tolist() == [0.0, 0.5, 2.0]


def test_a_request_of_one_token_does_not_count_for_time_per_output_token() -> None:
    summary = summarise_requests(three_requests(), TokenGaps())["tpot"]
    assert (summary.count, summary.mean, summary.maximum) == (2, 1.25, 2.0)


def test_gaps_are_pooled_over_requests() -> None:
    gaps = TokenGaps(np.array([0.5, 2.0]), np.array([4, 2]))
    summary = summarise_requests(three_requests(), gaps)["itl"]
    assert (summary.count, summary.mean) == (6, 1.0)
    assert (summary.percentile(50.0), summary.percentile(90.0)) == (0.5, 2.0)


def test_what_the_observer_cannot_see_is_nan() -> None:
    times = three_requests()
    unseen = RequestTimes(
        times.arrival_s, np.full(3, np.nan), times.first_token_s, times.last_token_s,
        times.num_output_tokens,
    )  # fmt: skip
    summary = summarise_requests(unseen, TokenGaps())["queue"]
    assert summary.count == 0
    assert math.isnan(summary.mean) and math.isnan(summary.percentile(99.0))


@pytest.mark.parametrize("percent", [0.1, 50.0, 90.0, 99.0, 100.0])
@pytest.mark.parametrize("num", [1, 2, 99, 100, 1000])
def test_percentiles_are_the_nearest_rank(percent: float, num: int) -> None:
    values = np.random.default_rng(num).random(num)
    expected = np.percentile(values, percent, method="inverted_cdf")
    assert summarise(values, percents=(percent,)).percentile(percent) == expected


def test_counts_are_the_same_as_repeated_values() -> None:
    values, counts = np.array([3.0, 1.0, 2.0]), np.array([5, 1, 4])
    repeated = np.repeat(values, counts)
    assert summarise(values, counts) == summarise(repeated)
