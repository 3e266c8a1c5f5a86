"""Modes are compared on the same work, and the verdict says what each sustained."""

from __future__ import annotations

import numpy as np
import pytest

from chairlift.bench.compare import (
    MODES,
    LoadPoint,
    charts,
    compare,
    sustained_rate,
    table,
    verdict,
)
from chairlift.config import BatchingMode
from chairlift.workload.request_metrics import RequestTimes
from chairlift.workload.workload import Workload

TTFT_S = {"static": 3.0, "dynamic": 2.0, "continuous": 0.5}


def make_workload(rate: float) -> Workload:
    return Workload(np.array([0.0, 1 / rate]), np.array([4, 4]), np.array([10, 30]))


def run(mode: BatchingMode, workload: Workload) -> tuple[RequestTimes, float, int]:
    """Every request has its mode's TTFT, times the number of requests/s, and ends 1 s later."""
    arrivals = workload.arrival_s
    rate = 1 / arrivals[1]
    first = arrivals + TTFT_S[mode] * rate
    times = RequestTimes(arrivals, arrivals, first, first + 1.0, workload.num_output_tokens)
    return times, 4.0, int(10 * rate)


def points() -> list[LoadPoint]:
    return compare([0.1, 0.4, 1.0, 4.0], make_workload, run)


def test_every_mode_runs_at_every_rate_in_turn() -> None:
    seen = points()
    assert [p.mode for p in seen[:3]] == list(MODES)
    assert [p.rate_per_s for p in seen[::3]] == [0.1, 0.4, 1.0, 4.0]
    assert (seen[0].requests_per_s, seen[0].output_tokens_per_s) == (0.5, 10.0)
    assert seen[-1].num_preemptions == 40


def test_results_are_told_as_they_come() -> None:
    told: list[LoadPoint] = []
    assert compare([1.0], make_workload, run, on_point=told.append) == told


def test_a_rate_is_sustained_while_the_ttft_stays_below_the_limit() -> None:
    rates = {mode: sustained_rate(points(), mode, 1.0) for mode in MODES}
    assert rates == {"static": 0.1, "dynamic": 0.4, "continuous": 1.0}
    assert sustained_rate(points(), "static", 0.1) == 0.0


def test_the_verdict_holds_the_best_of_each_mode() -> None:
    assert verdict(points(), 1.0)["continuous"] == {
        "max_output_tokens_per_s": 10.0,
        "sustained_rate_per_s": 1.0,
    }


def test_the_table_has_a_line_per_point() -> None:
    lines = table(points())
    assert len(lines) == 13
    assert lines[3].split()[:6] == ["0.1", "continuous", "0.50", "10.0", "50.0", "50.0"]


def test_charts_show_each_mode_against_the_load() -> None:
    throughput, ttft, *_ = charts(points(), 1.0)
    assert [series.name for series in throughput.series] == list(MODES)
    xs, ys = zip(*ttft.series[2].points, strict=True)
    assert xs == (0.1, 0.4, 1.0, 4.0)
    assert ys == pytest.approx((50.0, 200.0, 500.0, 2000.0))
    assert ttft.limit == 1000.0
