"""How long a newcomer would wait is foretold, and late ones are refused rather than queued."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes import make_limits, make_request

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.core.step_size import StepSize
from chairlift.engine.cost_rehearsal import learn_costs
from chairlift.engine.engine_core import EngineCore
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.tenants import TenantOptions
from chairlift.simulate.virtual_clock import VirtualClock
from chairlift.workload.options import WorkloadOptions

COST = CostModel(0.01, 0.0005, 0.0, 0.0, 0.0)


def _core(num_kv_blocks: int = 4096, **options: Any) -> tuple[EngineCore, VirtualClock]:
    config = SchedulerConfig(target_ttft_s=1.0, **options)
    limits = make_limits(num_kv_blocks=num_kv_blocks, block_size=16)
    scheduler, clock = Scheduler(config, limits), VirtualClock()
    learn_costs(scheduler.step_cost, COST, config, limits)
    return EngineCore(scheduler, SimulatedRunner(COST, clock), clock=clock), clock


def _delay_s(core: EngineCore) -> float:
    return core.stats().scheduler.start_delays.at_end.start_s


def test_an_idle_engine_starts_at_once() -> None:
    core, _ = _core()
    assert _delay_s(core) == 0.0


def test_prompts_before_it_are_read_first() -> None:
    core, _ = _core(max_num_seqs=8, max_num_batched_tokens=100)
    for number in range(4):
        core.add_request(make_request(f"r{number}", 1000, max_tokens=4))
    # 4,000 tokens in steps of 100 that take 0.01 + 100 x 0.0005 s.
    assert _delay_s(core) == pytest.approx(40 * 0.06, rel=0.05)
    assert core.stats().scheduler.start_delays.at_end.each_s == pytest.approx(10 * 0.06, rel=0.05)


def test_slots_before_it_have_to_come_free() -> None:
    core, _ = _core(max_num_seqs=2)
    for number in range(2):
        core.add_request(make_request(f"r{number}", 1, max_tokens=101))
    core.step()
    # Both have 100 tokens to go, in steps of 0.011 s: one ends every 0.55 s on average.
    assert _delay_s(core) == pytest.approx(0.55, rel=0.05)
    core.add_request(make_request("waiting", 1, max_tokens=100))
    assert _delay_s(core) == pytest.approx(1.1, rel=0.05)


def test_answers_are_taken_to_be_as_long_as_the_last_ones() -> None:
    core, _ = _core(max_num_seqs=1)
    core.add_request(make_request("short", 1, max_tokens=10))
    while core.has_work:
        core.step()
    core.add_request(make_request("may be long", 1, max_tokens=1000))
    core.step()
    assert _delay_s(core) == pytest.approx(10 * 0.0105, rel=0.05)


def test_blocks_before_it_have_to_come_free() -> None:
    core, _ = _core(num_kv_blocks=64, max_num_seqs=8, max_num_batched_tokens=1024)
    core.add_request(make_request("large", 1000, max_tokens=20))
    core.step()
    # It holds 63 blocks for 19 more steps of 0.0105 s; the next one needs a block it has to leave.
    core.add_request(make_request("next", 32, max_tokens=2))
    core.step()
    assert _delay_s(core) > 0.0
    assert core.stats().scheduler.num_waiting == 1


def test_nothing_is_foretold_without_a_target() -> None:
    config = SchedulerConfig(max_num_seqs=1)
    scheduler = Scheduler(config, make_limits())
    learn_costs(scheduler.step_cost, COST, config, make_limits())
    scheduler.add_request(make_request("a"))
    assert scheduler.stats().start_delays.at_end.start_s == 0.0


def _start_s(core: EngineCore, tenant: str = "", priority: int = 0) -> float:
    return core.stats().scheduler.start_delays.of(tenant, priority).start_s


def test_an_urgent_request_is_not_judged_by_the_line_of_less_urgent_ones() -> None:
    core, _ = _core(max_num_seqs=2, scheduling_policy="priority", priority_aging_s=10.0)
    for number in range(20):
        core.add_request(make_request(f"r{number}", 100, max_tokens=100, priority=3))
    core.step()
    core.step()
    # Two run and give way to it, so it starts at once; another of the same waits for 21 ends.
    assert _start_s(core, priority=2) == 0.0
    assert _start_s(core, priority=3) == _delay_s(core) > 5.0
    core.add_request(make_request("urgent", 200, max_tokens=100, priority=2))
    core.step()
    # It has a slot, and its prompt has been read: one more takes the other one's slot.
    assert _start_s(core, priority=2) == 0.0
    core.add_request(make_request("next", 200, max_tokens=100, priority=2))
    core.step()
    # Now both slots have nobody who gives way: the third waits for one of two to end.
    steps_s = 98.5 * COST.seconds(StepSize(2, 0, 2, 2)) / 2
    assert _start_s(core, priority=2) == pytest.approx(steps_s, rel=0.15)
    assert _start_s(core, priority=1) == 0.0


def test_who_waits_long_becomes_as_urgent_as_those_that_come_later() -> None:
    core, clock = _core(max_num_seqs=1, scheduling_policy="priority", priority_aging_s=1.0)
    core.add_request(make_request("runs", 10, max_tokens=200, priority=-9))
    core.add_request(make_request("waits", 10, max_tokens=200, priority=3))
    core.step()
    ends_s = 199 * COST.seconds(StepSize(1, 0, 1, 1))
    assert _start_s(core, priority=2) == pytest.approx(ends_s, rel=0.15)
    clock.advance(2.5)
    core.step()
    # After 2.5 s at a step of priority each second, it goes before newcomers of priority 1 too.
    assert _start_s(core, priority=0) == pytest.approx(ends_s, rel=0.15)
    assert _start_s(core, priority=1) == pytest.approx(2 * ends_s, rel=0.15)


def test_a_tenant_with_little_service_is_not_judged_by_the_line_of_another() -> None:
    core, _ = _core(max_num_seqs=2, scheduling_policy="fair")
    for number in range(40):
        core.add_request(make_request(f"r{number}", 10, max_tokens=50, tenant="greedy"))
    for _ in range(60):
        core.step()
    core.add_request(make_request("small", 10, max_tokens=50, tenant="modest"))
    core.step()
    greedy_s, modest_s = _start_s(core, "greedy"), _start_s(core, "modest")
    assert greedy_s == _delay_s(core) > 8.0
    # As many of the greedy one's go before it as equal the service of its one request.
    assert modest_s < greedy_s / 8
    assert _start_s(core, "new") <= modest_s


def test_nobody_gives_way_in_a_static_batch_whatever_the_priority() -> None:
    core, _ = _core(max_num_seqs=1, scheduling_policy="priority", batching="static")
    core.add_request(make_request("runs", 10, max_tokens=100, priority=5))
    core.step()
    assert _start_s(core, priority=-5) == _delay_s(core) > 0.5


@pytest.mark.parametrize("policy", ["fcfs", "prefix"])
def test_other_policies_send_every_newcomer_to_the_end(policy: str) -> None:
    core, _ = _core(max_num_seqs=1, scheduling_policy=policy)
    for number in range(5):
        core.add_request(make_request(f"r{number}", 10, max_tokens=100, priority=5, tenant="a"))
    core.step()
    assert _start_s(core, "b", -5) == _delay_s(core) > 2.0


def test_under_overload_urgent_requests_are_let_in_and_less_urgent_ones_refused() -> None:
    work = WorkloadOptions(
        num_requests=400, rate=16.0, prompt_lengths="64", output_lengths="uniform:50-150"
    )
    mix = TenantOptions(tenant_mix="vip=1,bulk=3", tenant_priorities="vip=-50").load()
    limits = EngineLimits(1 << 40, 8192, 16, 16384, 4096, target_ttft_s=1.0)
    config = SchedulerConfig(max_num_seqs=16, target_ttft_s=1.0, scheduling_policy="priority")
    setup = ReplicaSetup(config, limits, COST)
    vip, bulk = simulate(mix.assign(work.build(), 0), setup).tenants
    assert vip.num_refused < 0.02 * vip.num_requests
    assert bulk.num_refused > 0.3 * bulk.num_requests
    assert vip.summaries()["queue"].percentile(95) < 0.3


def _overloaded(target_ttft_s: float) -> SimulationResult:
    """Twice as many requests a second as 16 slots can serve."""
    work = WorkloadOptions(
        num_requests=500, rate=16.0, prompt_lengths="64", output_lengths="uniform:50-150"
    )
    config = SchedulerConfig(max_num_seqs=16, target_ttft_s=target_ttft_s)
    limits = EngineLimits(1 << 40, 8192, 16, 16384, 4096, target_ttft_s=target_ttft_s)
    return simulate(work.build(), ReplicaSetup(config, limits, COST))


def test_under_overload_who_is_let_in_starts_in_time_and_the_engine_stays_busy() -> None:
    queued, bounded = _overloaded(0.0), _overloaded(1.0)
    assert queued.summaries()["queue"].percentile(50) > 3.0
    assert queued.num_refused == 0
    assert bounded.summaries()["queue"].percentile(95) < 1.3
    assert 0 < bounded.num_refused < 500
    assert bounded.output_throughput_per_s > 0.95 * queued.output_throughput_per_s
