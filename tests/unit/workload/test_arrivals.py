"""Arrival times have the rate and the burstiness that were asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chairlift.errors import ConfigError
from chairlift.workload.arrivals import ArrivalProcess


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_constant_arrivals_are_one_gap_apart() -> None:
    times = ArrivalProcess("constant", 4.0).times_s(3, rng())
    assert times.tolist() == pytest.approx([0.25, 0.5, 0.75])


@pytest.mark.parametrize("process", [ArrivalProcess("poisson", 5.0), ArrivalProcess("gamma", 5.0)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_seed_offers_exactly_the_rate(process: ArrivalProcess, seed: int) -> None:
    times = process.times_s(100, rng(seed))
    assert times[-1] == pytest.approx(100 / 5.0)
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_sets_how_much_the_gaps_vary(burstiness: float) -> None:
    process = ArrivalProcess("gamma", 1.0, burstiness)
    gaps = np.diff(process.times_s(50_000, rng()))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(ArrivalProcess("poisson", 1.0).times_s(50_000, rng()))
    for multiple in (0.5, 1.0, 2.0):
        assert (gaps > multiple).mean() == pytest.approx(math.exp(-multiple), abs=0.01)


def test_an_infinite_rate_brings_all_at_the_start() -> None:
    assert ArrivalProcess("poisson").times_s(3, rng()).tolist() == [0.0, 0.0, 0.0]


def test_no_requests_have_no_times() -> None:
    assert ArrivalProcess("poisson", 1.0).times_s(0, rng()).shape == (0,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "often"}, "arrivals must be one of constant, poisson, gamma, got 'often'"),
        ({"rate_per_s": 0.0}, "rate must be above 0"),
        ({"rate_per_s": math.nan}, "rate must be above 0"),
        ({"kind": "gamma", "burstiness": 0.0}, "burstiness must be above 0"),
        ({"kind": "poisson", "burstiness": 0.5}, "burstiness 0.5 is for gamma arrivals"),
    ],
)
def test_impossible_processes_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ArrivalProcess(**fields)  # type: ignore[arg-type]
