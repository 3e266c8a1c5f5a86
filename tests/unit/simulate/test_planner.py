"""Plans find the rate that an engine bears, and a fleet that keeps the objectives."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.errors import ConfigError
from chairlift.simulate.planner import (
    PlanRequest,
    best_of,
    candidates,
    drift,
    find_capacity,
    size_fleet,
)
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulator import simulate
from chairlift.workload.arrivals import ArrivalProcess
from chairlift.workload.lengths import ConstantLengths
from chairlift.workload.objectives import parse_objectives
from chairlift.workload.workload import Workload, make_workload

# Steps of 0.1 s whatever is in them: a request of 10 tokens takes 1 s, an engine with 4 slots
# bears just below 4 requests/s.
SETUP = ReplicaSetup(
    SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64),
    EngineLimits(1 << 30, 100, 16, 1000, 4096),
    CostModel(0.1),
)


def evenly(rate_per_s: float, num_requests: int) -> Workload:
    lengths = ConstantLengths(5), ConstantLengths(10)
    return make_workload(num_requests, ArrivalProcess("constant", rate_per_s), *lengths)


def request_for(slo: str, rate_per_s: float = 30.0, num_requests: int = 200) -> PlanRequest:
    return PlanRequest(rate_per_s, parse_objectives(slo), evenly, num_requests)


def test_the_capacity_is_the_rate_at_which_the_slots_are_full() -> None:
    capacity = find_capacity(request_for("ttft_p99<500ms"), SETUP)
    assert capacity.rate_per_s == pytest.approx(4.0, rel=0.03)


def test_rates_above_the_capacity_break_the_objective_and_those_below_keep_it() -> None:
    capacity = find_capacity(request_for("ttft_p99<500ms"), SETUP)
    assert len(capacity.trials) == 9
    for trial in capacity.trials:
        assert trial.is_kept == (trial.rate_per_s <= capacity.rate_per_s)
        assert trial.is_kept == (trial.values_s[0] < 0.5)


def test_a_load_whose_line_keeps_growing_is_not_borne_whatever_the_objective() -> None:
    """Tokens come in time however many wait; at 6 requests/s the line grows all the time."""
    capacity = find_capacity(request_for("tpot_p99<500ms"), SETUP)
    assert capacity.rate_per_s == pytest.approx(4.3, rel=0.1)
    growing = simulate(evenly(6.0, 200), SETUP)
    assert drift(growing) > 1.5
    assert drift(simulate(evenly(3.0, 200), SETUP)) == pytest.approx(1.0, abs=0.05)


def test_an_objective_that_no_step_can_keep_gives_no_capacity() -> None:
    capacity = find_capacity(request_for("itl_p50<50ms"), SETUP)
    assert capacity.rate_per_s == 0.0
    assert best_of([capacity]) is None


def test_refused_requests_break_every_objective() -> None:
    tiny = replace(SETUP, limits=replace(SETUP.limits, max_model_len=8))
    assert find_capacity(request_for("ttft_p99<500ms"), tiny).rate_per_s == 0.0


def test_the_fleet_is_large_enough_and_no_larger_than_the_rates_ask_for() -> None:
    request = request_for("ttft_p99<500ms")
    capacity = find_capacity(request, SETUP)
    fleet = size_fleet(request, SETUP, capacity)
    assert fleet is not None
    assert fleet.num_replicas == 8
    again = simulate(evenly(30.0, 1600), SETUP, 8).summaries()["ttft"]
    assert fleet.values_s == (again.percentile(99.0),)
    assert fleet.values_s[0] < 0.5


def test_a_fleet_grows_until_it_keeps_the_objectives() -> None:
    request = request_for("ttft_p99<500ms")
    optimistic = replace(find_capacity(request, SETUP), rate_per_s=5.0)
    fleet = size_fleet(request, SETUP, optimistic)
    assert fleet is not None
    assert fleet.num_replicas in (7, 8)


def test_a_fleet_that_no_growth_helps_is_none() -> None:
    request = request_for("itl_p50<50ms", num_requests=100)
    capacity = replace(find_capacity(request, SETUP), rate_per_s=4.0)
    assert size_fleet(request, SETUP, capacity) is None


def test_candidates_are_the_pairs_that_go_together() -> None:
    found = candidates(SETUP, [16, 64], [32, 128])
    pairs = [(s.scheduler.max_num_seqs, s.scheduler.max_num_batched_tokens) for s in found]
    assert pairs == [(16, 32), (16, 128), (64, 128)]


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(ConfigError, match="no max_num_seqs of"):
        candidates(SETUP, [64], [32])
    with pytest.raises(ConfigError, match="rate must be above 0 and finite, got inf"):
        request_for("ttft_p99<1s", rate_per_s=math.inf)
    with pytest.raises(ConfigError, match="at least 100 requests, got 10"):
        request_for("ttft_p99<1s", num_requests=10)
    with pytest.raises(ConfigError, match="says no percentile"):
        request_for("ttft<1s")
