"""Simulations equal what is worked out by hand, the engine core's own run, and single steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.config import BatchingMode, EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.engine.engine_core import EngineCore
from chairlift.errors import ConfigError
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.virtual_clock import VirtualClock
from chairlift.workload.arrivals import ArrivalProcess
from chairlift.workload.lengths import parse_lengths
from chairlift.workload.workload import Workload, make_workload


def make_setup(
    *,
    max_num_seqs: int = 4,
    max_num_batched_tokens: int = 32,
    num_kv_blocks: int = 1000,
    cost: CostModel | None = None,
    batching: BatchingMode = "continuous",
    scheduling_policy: str = "fcfs",
    max_num_waiting: int = 10_000,
    num_swap_blocks: int = 0,
    **fields: Any,
) -> ReplicaSetup:
    """A small engine whose steps take one second."""
    config = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_waiting=max_num_waiting,
        batching=batching,
        batch_window_s=1.5,
        scheduling_policy=scheduling_policy,
        preemption_mode="swap",
    )
    limits = EngineLimits(
        1 << 30, 500, 4, num_kv_blocks, max_num_waiting, num_swap_blocks, swap_block_s=0.01
    )
    return ReplicaSetup(config, limits, cost or CostModel(1.0), **fields)


def workload_of(*rows: tuple[float, int, int]) -> Workload:
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return Workload(np.array(arrivals), np.array(prompts), np.array(outputs))


def moments(result: SimulationResult) -> dict[str, list[float]]:
    times = result.times
    return {
        "scheduled": times.scheduled_s.tolist(),
        "first": times.first_token_s.tolist(),
        "last": times.last_token_s.tolist(),
    }


def test_three_requests_take_the_steps_worked_out_by_hand() -> None:
    """Two slots, steps of 1 s: A takes 0-3; B, there at 0.5, 1-3; C, there at 0.6, from 3."""
    workload = workload_of((0.0, 1, 3), (0.5, 1, 2), (0.6, 1, 1))
    result = simulate(workload, make_setup(max_num_seqs=2))
    assert moments(result) == {
        "scheduled": [0.0, 1.0, 3.0],
        "first": [1.0, 2.0, 4.0],
        "last": [3.0, 3.0, 4.0],
    }
    assert result.replica_steps == (4,)
    assert result.duration_s == 4.0
    assert result.num_output_tokens == 6
    assert result.summaries()["itl"].count == 3
    assert result.summaries()["queue"].maximum == pytest.approx(2.4)


def test_prompts_are_read_in_chunks_of_the_budget() -> None:
    setup = make_setup(max_num_batched_tokens=8, cost=CostModel(0.0, 1.0))
    result = simulate(workload_of((0.0, 20, 2)), setup)
    assert result.replica_steps == (4,)
    assert moments(result)["first"] == [20.0]
    assert moments(result)["last"] == [21.0]


def test_longer_contexts_make_longer_steps() -> None:
    result = simulate(workload_of((0.0, 2, 3)), make_setup(cost=CostModel(0.0, 0.0, 1.0)))
    # The prompt's pairs 1 + 2, then one token over 3 and one over 4.
    assert moments(result)["first"] == [3.0]
    assert moments(result)["last"] == [10.0]


def test_static_batches_hand_their_tokens_out_at_their_end() -> None:
    result = simulate(
        workload_of((0.0, 1, 2), (0.0, 1, 5), (0.0, 1, 1)),
        make_setup(max_num_seqs=2, batching="static"),
    )
    assert moments(result)["first"] == moments(result)["last"] == [5.0, 5.0, 6.0]
    assert result.summaries()["itl"].count == 0


def test_a_dynamic_batch_waits_its_window() -> None:
    result = simulate(workload_of((0.0, 1, 1), (1.0, 1, 1)), make_setup(batching="dynamic"))
    assert moments(result)["last"] == [2.5, 2.5]


def random_workload(seed: int, rate: float, *, num_requests: int = 60) -> Workload:
    lengths = parse_lengths("lognormal:12,60,90"), parse_lengths("lognormal:8,40,60")
    return make_workload(num_requests, ArrivalProcess("gamma", rate, 0.5), *lengths, seed)


def core_run(workload: Workload, setup: ReplicaSetup) -> tuple[dict[str, list[float]], int]:
    """The same workload through the product's EngineCore with a simulated runner."""
    clock = VirtualClock()
    scheduler = Scheduler(
        setup.scheduler, setup.limits, enable_prefix_caching=setup.enable_prefix_caching
    )
    runner = SimulatedRunner(setup.cost, clock, setup.limits.swap_block_s)
    core = EngineCore(scheduler, runner, clock=clock)
    coming = list(enumerate(workload.rows()))
    scheduled, first, last = ([0.0] * len(workload) for _ in range(3))
    while coming or core.has_work:
        while coming and coming[0][1][0] <= clock():
            number, (arrival_s, num_prompt, num_output) = coming.pop(0)
            params = SamplingParams(max_tokens=num_output, ignore_eos=True)
            prompt = (2 * number + 1,) * num_prompt
            core.add_request(CoreRequest(str(number), prompt, params, arrival_s, ()))
        if not core.has_work:
            clock.advance(coming[0][1][0] - clock())
            continue
        for output in core.step():
            if output.finish_reason is not None:
                assert output.timings is not None
                scheduled[int(output.request_id)] = output.timings.scheduled_s
                first[int(output.request_id)] = output.timings.first_token_s
                last[int(output.request_id)] = output.timings.last_token_s
    times = {"scheduled": scheduled, "first": first, "last": last}
    return times, core.stats().scheduler.num_preemptions_total


COSTS = CostModel(0.5, 0.02, 0.0001, 0.01, 0.005)


@pytest.mark.parametrize("rate", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("num_kv_blocks", [45, 1000])
@pytest.mark.parametrize("enable_prefix_caching", [False, True])
@pytest.mark.parametrize("num_swap_blocks", [0, 20])
def test_the_simulation_takes_the_decisions_of_the_engine_core(
    rate: float, num_kv_blocks: int, enable_prefix_caching: bool, num_swap_blocks: int
) -> None:
    workload = random_workload(3, rate)
    setup = make_setup(
        num_swap_blocks=num_swap_blocks,
        num_kv_blocks=num_kv_blocks,
        max_num_seqs=8,
        cost=COSTS,
        enable_prefix_caching=enable_prefix_caching,
    )
    expected, num_preemptions = core_run(workload, setup)
    result = simulate(workload, setup)
    seen = moments(result)
    for name, values in expected.items():
        assert seen[name] == pytest.approx(values, rel=1e-9), name
    assert result.num_preemptions == num_preemptions


def test_copies_between_the_tiers_take_their_time() -> None:
    """B gives way for A's growth and comes back: what it copies is computed no more."""
    workload = workload_of((0.0, 8, 20), (0.0, 8, 12))
    prices = CostModel(1.0, 1.0)
    recomputed, swapped = (
        simulate(workload, make_setup(num_kv_blocks=8, num_swap_blocks=slots, cost=prices))
        for slots in (0, 8)
    )
    assert recomputed.num_preemptions == swapped.num_preemptions == 1
    saved_s = recomputed.duration_s - swapped.duration_s
    num_blocks = round(saved_s / 4.0)  # of 4 tokens
    assert num_blocks > 0
    assert saved_s == pytest.approx(4.0 * num_blocks - 2 * 0.01 * num_blocks, abs=1.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    rate=st.sampled_from([0.05, 0.3, 2.0, float("inf")]),
    max_num_seqs=st.sampled_from([1, 3, 16]),
    num_kv_blocks=st.sampled_from([40, 60, 1000]),
    batching=st.sampled_from(["continuous", "static", "dynamic"]),
    policy=st.sampled_from(["fcfs", "priority", "fair", "prefix"]),
)
def test_stretches_change_nothing(
    seed: int,
    rate: float,
    max_num_seqs: int,
    num_kv_blocks: int,
    batching: BatchingMode,
    policy: str,
) -> None:
    """Steps run together give every request the moments that single steps give it."""
    workload = random_workload(seed, rate, num_requests=40)
    setup = make_setup(
        max_num_seqs=max_num_seqs,
        num_kv_blocks=num_kv_blocks,
        cost=COSTS,
        batching=batching,
        scheduling_policy=policy,
    )
    fast = simulate(workload, setup)
    slow = simulate(workload, replace(setup, use_stretches=False))
    for name, values in moments(slow).items():
        assert moments(fast)[name] == pytest.approx(values), name
    assert fast.replica_steps == slow.replica_steps
    assert fast.num_preemptions == slow.num_preemptions
    assert fast.summaries()["itl"].count == slow.summaries()["itl"].count
    assert fast.summaries()["itl"].mean == pytest.approx(slow.summaries()["itl"].mean, nan_ok=True)


def test_a_small_pool_preempts() -> None:
    setup = make_setup(num_kv_blocks=40, max_num_seqs=16, cost=COSTS)
    assert simulate(random_workload(0, 5.0), setup).num_preemptions > 0


def test_requests_that_never_fit_or_find_the_queue_full_are_refused() -> None:
    setup = make_setup(max_num_seqs=1, max_num_waiting=1)
    workload = workload_of((0.0, 600, 1), (0.0, 1, 5), (1.5, 1, 1), (1.6, 1, 1))
    result = simulate(workload, setup)
    assert result.num_refused == 2
    assert moments(result)["last"] == [5.0, 6.0]


def test_common_prefixes_are_found_in_the_cache() -> None:
    rng = np.random.default_rng(0)
    workload = random_workload(0, 0.01).with_prefixes(1, 8, rng)
    cached = simulate(workload, make_setup(enable_prefix_caching=True, cost=COSTS))
    plain = simulate(workload, make_setup(cost=COSTS))
    assert 0.1 < cached.prefix_cache_hit_rate < 1.0
    assert plain.prefix_cache_hit_rate == 0.0
    assert cached.num_prompt_tokens < plain.num_prompt_tokens


def test_round_robin_gives_each_replica_every_other_request() -> None:
    workload = workload_of((0.0, 1, 4), (0.0, 1, 2), (0.0, 1, 3), (0.0, 1, 1))
    result = simulate(workload, make_setup(max_num_seqs=1), num_replicas=2)
    assert moments(result)["last"] == [4.0, 2.0, 7.0, 3.0]
    assert result.replica_steps == (7, 3)


def test_least_loaded_sends_a_request_where_fewest_are() -> None:
    workload = workload_of((0.0, 1, 9), (0.0, 1, 2), (2.5, 1, 1), (2.6, 1, 1))
    setup = make_setup(max_num_seqs=1)
    result = simulate(workload, setup, num_replicas=2, routing="least-loaded")
    assert moments(result)["last"] == [9.0, 2.0, 3.5, 10.0]


def test_prefix_aware_routing_finds_more_in_the_caches_than_round_robin() -> None:
    workload = random_workload(1, 0.05, num_requests=200)
    workload = workload.with_prefixes(12, 24, np.random.default_rng(0))
    setup = make_setup(enable_prefix_caching=True, cost=COSTS, num_kv_blocks=60)
    aware = simulate(workload, setup, num_replicas=3, routing="prefix-aware")
    blind = simulate(workload, setup, num_replicas=3)
    assert aware.prefix_cache_hit_rate > 1.2 * blind.prefix_cache_hit_rate


@pytest.mark.parametrize("routing", ["round-robin", "least-loaded"])
def test_every_request_ends_whatever_the_routing(routing: Any) -> None:
    workload = random_workload(5, 2.0)
    result = simulate(workload, make_setup(cost=COSTS), num_replicas=3, routing=routing)
    assert len(result.times) == len(workload)
    assert result.num_output_tokens == int(workload.num_output_tokens.sum())


def test_impossible_fleets_are_refused() -> None:
    workload = workload_of((0.0, 1, 1))
    with pytest.raises(ConfigError, match="replicas must be at least 1, got 0"):
        simulate(workload, make_setup(), num_replicas=0)
    with pytest.raises(ConfigError, match="routing must be one of round-robin, least-loaded"):
        simulate(workload, make_setup(), routing="random")  # type: ignore[arg-type]


def test_a_clock_never_goes_back() -> None:
    with pytest.raises(ConfigError, match="a clock only advances"):
        VirtualClock().advance(-1.0)
