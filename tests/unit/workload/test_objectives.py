"""Objectives are read, checked against summaries, and counted over requests."""

from __future__ import annotations

import numpy as np
import pytest

from chairlift.errors import ConfigError
from chairlift.workload.objectives import (
    Objective,
    goodput_per_s,
    parse_objectives,
    percents_of,
)
from chairlift.workload.request_metrics import RequestTimes, summarise


def test_metric_percentile_limit_and_unit_are_read() -> None:
    assert parse_objectives("ttft_p99<1s, itl_p99.9 <= 100ms,tpot_mean<50ms,e2el<2min") == (
        Objective("ttft", 99.0, 1.0),
        Objective("itl", 99.9, 0.1),
        Objective("tpot", 0.0, 0.05),
        Objective("e2el", None, 120.0),
    )


@pytest.mark.parametrize("text", ["ttft_p99<1s", "itl_p99.9<100ms", "tpot_mean<50ms", "e2el<120s"])
def test_an_objective_prints_as_it_is_written(text: str) -> None:
    assert str(parse_objectives(text)[0]) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an objective is METRIC_pPERCENT<LIMIT as in ttft_p99<1s"),
        ("speed_p99<1s", "got 'speed_p99<1s'"),
        ("ttft_p99<1", "one of us, ms, s, min, got 'ttft_p99<1'"),
        ("ttft_p99>1s", "got 'ttft_p99>1s'"),
        ("ttft_p0<1s", "a percentile is above 0 and at most 100, got p0"),
        ("ttft_p101<1s", "got p101"),
        ("ttft_p9.9.9<1s", "got p9.9.9"),
    ],
)
def test_what_is_no_objective_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_objectives(text)


def test_an_objective_is_met_below_its_limit_only() -> None:
    summaries = {"ttft": summarise(np.array([1.0, 2.0, 3.0, 4.0]))}
    assert parse_objectives("ttft_p50<2.01s")[0].is_met(summaries)
    assert not parse_objectives("ttft_p50<2s")[0].is_met(summaries)
    assert not parse_objectives("ttft_mean<2.5s")[0].is_met(summaries)


def test_an_objective_about_nothing_is_met() -> None:
    assert parse_objectives("tpot_p99<1ms")[0].is_met({"tpot": summarise(np.array([np.nan]))})


def test_the_percentiles_of_objectives_are_collected() -> None:
    assert percents_of(parse_objectives("ttft_p99<1s,itl_p50<1s,tpot_p99<1s,e2el_mean<1s")) == (
        50.0,
        99.0,
    )


def times() -> RequestTimes:
    """TTFT 1, 1, 3; TPOT 1, 5, undefined."""
    return RequestTimes(
        np.zeros(3), np.zeros(3), np.array([1.0, 1.0, 3.0]), np.array([2.0, 6.0, 3.0]),
        np.array([2, 2, 1]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "num_good"),
    [("ttft<2s", 2), ("tpot<2s", 2), ("ttft<2s,tpot<2s", 1), ("ttft<4s,tpot<6s", 3)],
)
def test_goodput_counts_requests_that_keep_every_limit(limits: str, num_good: int) -> None:
    assert goodput_per_s(times(), parse_objectives(limits), 10.0) == pytest.approx(num_good / 10)


@pytest.mark.parametrize("limits", ["ttft_p99<1s", "itl<1s"])
def test_goodput_refuses_what_no_request_has_by_itself(limits: str) -> None:
    with pytest.raises(ConfigError, match=f"got {limits}"):
        goodput_per_s(times(), parse_objectives(limits), 10.0)
