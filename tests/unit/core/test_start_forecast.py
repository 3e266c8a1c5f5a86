"""How long a newcomer would wait is foretold, and late ones are refused rather than queued."""

from __future__ import annotations

import pytest
from tests.fakes import make_limits, make_request

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.engine.cost_rehearsal import learn_costs
from chairlift.engine.engine_core import EngineCore
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.virtual_clock import VirtualClock
from chairlift.workload.options import WorkloadOptions

COST = CostModel(0.01, 0.0005, 0.0, 0.0, 0.0)


def _core(num_kv_blocks: int = 4096, **options: float) -> tuple[EngineCore, VirtualClock]:
    config = SchedulerConfig(target_ttft_s=1.0, **options)  # type: ignore[arg-type]
    limits = make_limits(num_kv_blocks=num_kv_blocks, block_size=16)
    scheduler, clock = Scheduler(config, limits), VirtualClock()
    learn_costs(scheduler.step_cost, COST, config, limits)
    return EngineCore(scheduler, SimulatedRunner(COST, clock), clock=clock), clock


def _delay_s(core: EngineCore) -> float:
    return core.stats().scheduler.start_delay_s


def test_an_idle_engine_starts_at_once() -> None:
    core, _ = _core()
    assert _delay_s(core) == 0.0


def test_prompts_before_it_are_read_first() -> None:
    core, _ = _core(max_num_seqs=8, max_num_batched_tokens=100)
    for number in range(4):
        core.add_request(make_request(f"r{number}", 1000, max_tokens=4))
    # 4,000 tokens in steps of 100 that take 0.01 + 100 x 0.0005 s.
    assert _delay_s(core) == pytest.approx(40 * 0.06, rel=0.05)
    assert core.stats().scheduler.start_delay_each_s == pytest.approx(10 * 0.06, rel=0.05)


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
    assert scheduler.stats().start_delay_s == 0.0


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
