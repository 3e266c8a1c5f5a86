"""A workload on an engine core takes the moments that the core's clock gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fakes import make_limits

from chairlift.bench.engine_load import Time, run_engine_load
from chairlift.config import BatchingMode, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.engine.engine_core import EngineCore
from chairlift.errors import ConfigError
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.virtual_clock import VirtualClock
from chairlift.workload.workload import Workload


def make_core(clock: VirtualClock, batching: BatchingMode = "continuous") -> EngineCore:
    """An engine whose steps take a second."""
    config = SchedulerConfig(max_num_seqs=2, batching=batching, batch_window_s=1.5)
    scheduler = Scheduler(config, make_limits(num_kv_blocks=64))
    return EngineCore(scheduler, SimulatedRunner(CostModel(1.0), clock), clock=clock)


def run(
    clock: VirtualClock, core: EngineCore, *rows: tuple[float, int, int]
) -> list[tuple[float, float, float]]:
    """Scheduled, first and last moment of each request, from the start."""
    start_s = clock()
    arrivals, prompts, outputs = zip(*rows, strict=True)
    workload = Workload(np.array(arrivals), np.array(prompts), np.array(outputs))
    result = run_engine_load(core, workload, 50, clock=Time(clock, clock.advance))
    times = result.times
    columns = (times.scheduled_s, times.first_token_s, times.last_token_s)
    return [(s - start_s, f - start_s, e - start_s) for s, f, e in zip(*columns, strict=True)]


def test_requests_are_taken_in_between_steps() -> None:
    clock = VirtualClock(100.0)
    seen = run(clock, make_core(clock), (0.0, 1, 3), (0.5, 1, 2), (0.6, 1, 1))
    assert seen == [(0.0, 1.0, 3.0), (1.0, 2.0, 3.0), (3.0, 4.0, 4.0)]


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    clock = VirtualClock(100.0)
    seen = run(clock, make_core(clock), (0.0, 1, 1), (7.0, 1, 1))
    assert seen == [(0.0, 1.0, 1.0), (7.0, 8.0, 8.0)]


def test_static_batches_count_when_they_are_handed_out() -> None:
    clock = VirtualClock(100.0)
    seen = run(clock, make_core(clock, "static"), (0.0, 1, 2), (0.0, 1, 4), (0.0, 1, 1))
    assert [(first, last) for _, first, last in seen] == [(4.0, 4.0), (4.0, 4.0), (5.0, 5.0)]


def test_a_dynamic_batch_waits_its_window() -> None:
    clock = VirtualClock(100.0)
    seen = run(clock, make_core(clock, "dynamic"), (0.0, 1, 1))
    assert seen[0] == pytest.approx((1.5, 2.5, 2.5))


def test_a_core_can_be_used_again() -> None:
    clock = VirtualClock(100.0)
    core = make_core(clock)
    assert run(clock, core, (0.0, 1, 2)) == run(clock, core, (0.0, 1, 2))


def test_a_request_that_fails_ends_the_run() -> None:
    class Failing(SimulatedRunner):
        def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
            return ModelRunnerOutput({}, errors={row.request_id: "NaN" for row in plan.scheduled})

    clock = VirtualClock()
    scheduler = Scheduler(SchedulerConfig(), make_limits())
    core = EngineCore(scheduler, Failing(CostModel(1.0), clock), clock=clock)
    with pytest.raises(ConfigError, match="request 0 failed: NaN"):
        run(clock, core, (0.0, 1, 1))
