"""Requests that wait beside an idle engine are not left waiting for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest
from tests.fakes import FakeRunner, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.watchdog import MAX_STALLED_STEPS
from chairlift.outputs import FinishReason, StepOutput


class NobodyNext(FcfsPolicy):
    """A policy with a mistake: it never gives anybody a turn."""

    def next(
        self, now_s: float, passed: Collection[Request], full_tenants: Collection[str]
    ) -> Request | None:
        return None


def core_of(scheduler: Scheduler) -> EngineCore:
    return EngineCore(scheduler, FakeRunner(block_size=4), clock=lambda: 1.0)


def run(core: EngineCore, num_steps: int) -> list[StepOutput]:
    return [output for _ in range(num_steps) for output in core.step()]


def test_what_lacks_blocks_that_nobody_will_free_fails_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O13 (vllm-metal#479): here six of the eight blocks have been lost."""
    scheduler = Scheduler(SchedulerConfig(max_head_passes=0), make_limits(num_kv_blocks=8))
    scheduler.kv_cache.pool.allocate(6)
    core = core_of(scheduler)
    core.add_request(make_request("big", 20))
    core.add_request(make_request("small", 2, max_tokens=1))
    with caplog.at_level(logging.ERROR):
        outputs = run(core, MAX_STALLED_STEPS + 2)
    failed, done = outputs
    assert (failed.request_id, failed.finish_reason) == ("big", FinishReason.ERROR)
    assert failed.error is not None
    assert "needs 5 KV blocks and 2 are there" in failed.error
    assert (done.request_id, done.finish_reason) == ("small", FinishReason.LENGTH)
    assert "2 requests wait and nothing runs: big" in caplog.text


def test_a_policy_that_forgets_everybody_fails_them_by_name() -> None:
    config = SchedulerConfig(scheduling_policy=f"{__name__}:NobodyNext")
    core = core_of(Scheduler(config, make_limits()))
    core.add_request(make_request("a"))
    core.add_request(make_request("b"))
    outputs = run(core, MAX_STALLED_STEPS)
    assert {output.request_id for output in outputs} == {"a", "b"}
    assert all("policy" in (output.error or "") for output in outputs)
    assert core.wait_s() is None


def test_it_does_not_bark_while_time_has_to_pass() -> None:
    config = SchedulerConfig(batching="dynamic", batch_window_s=30.0)
    core = core_of(Scheduler(config, make_limits()))
    core.add_request(make_request("a", arrival_time_s=1.0))
    assert run(core, 3 * MAX_STALLED_STEPS) == []


def test_it_does_not_bark_at_an_engine_that_is_idle() -> None:
    core = core_of(Scheduler(SchedulerConfig(), make_limits()))
    assert run(core, 3 * MAX_STALLED_STEPS) == []
