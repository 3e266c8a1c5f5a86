"""Steps of the core, and what becomes of a step that fails."""

from __future__ import annotations

import logging

import pytest
from tests.fakes import FakeRunner, expected_tokens, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.engine.engine_core import MAX_FAILED_STEPS_IN_A_ROW, EngineCore
from chairlift.errors import ContextLengthError, EngineDeadError
from chairlift.outputs import FinishReason, StepOutput


class FailingRunner(FakeRunner):
    """Raises in the steps in which one of some requests takes part."""

    def __init__(self) -> None:
        super().__init__(block_size=4)
        self.bad: set[str] = set()

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        if any(row.request_id in self.bad for row in plan.scheduled):
            raise RuntimeError("kaput")
        known = [i for i in plan.finished_request_ids if i in self.token_ids]
        plan.finished_request_ids[:] = known
        return super().execute(plan)


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _core(
    config: SchedulerConfig | None = None, num_kv_blocks: int = 64
) -> tuple[EngineCore, FailingRunner, Clock]:
    clock, runner = Clock(), FailingRunner()
    scheduler = Scheduler(config or SchedulerConfig(), make_limits(num_kv_blocks))
    return EngineCore(scheduler, runner, clock=clock), runner, clock


def _run(core: EngineCore) -> dict[str, list[StepOutput]]:
    outputs: dict[str, list[StepOutput]] = {}
    while core.has_work:
        for output in core.step():
            outputs.setdefault(output.request_id, []).append(output)
    return outputs


def _tokens(outputs: list[StepOutput]) -> list[int]:
    return [token for output in outputs for token in output.token_ids]


def test_requests_are_answered_step_by_step() -> None:
    core, _, _ = _core()
    requests = [make_request("a", 3), make_request("b", 9, max_tokens=2)]
    for request in requests:
        core.add_request(request)
    outputs = _run(core)
    for request in requests:
        assert _tokens(outputs[request.request_id]) == expected_tokens(request)
        assert outputs[request.request_id][-1].finish_reason is FinishReason.LENGTH


def test_an_aborted_request_gets_a_last_output_and_no_more_steps() -> None:
    core, _, _ = _core()
    core.add_request(make_request("a", 3))
    core.step()
    (output,) = core.abort(["a", "unknown"])
    assert output.finish_reason is FinishReason.ABORT
    assert _run(core) == {}


def test_a_request_that_can_never_fit_is_refused() -> None:
    core, _, _ = _core(num_kv_blocks=2)
    with pytest.raises(ContextLengthError):
        core.add_request(make_request("a", 20))
    assert not core.has_work


def test_the_core_waits_for_ever_without_work_and_not_at_all_with_it() -> None:
    core, _, _ = _core()
    assert core.wait_s() is None
    core.add_request(make_request("a", 3, max_tokens=1))
    assert core.wait_s() == 0.0
    _run(core)
    assert core.wait_s() is None


def test_the_core_waits_for_company_while_a_dynamic_batch_fills() -> None:
    core, _, clock = _core(SchedulerConfig(batching="dynamic", batch_window_s=0.5))
    core.add_request(make_request("a", 3, max_tokens=1))
    assert core.step() == []
    clock.now_s = 0.2
    assert core.wait_s() == pytest.approx(0.3)
    clock.now_s = 0.5
    assert core.wait_s() == 0.0
    assert _run(core).keys() == {"a"}


def test_a_new_request_ends_the_wait_for_company() -> None:
    config = SchedulerConfig(
        max_num_seqs=2, batching="dynamic", batch_window_s=60.0, max_num_batched_tokens=64
    )
    core, _, _ = _core(config)
    core.add_request(make_request("a", 3, max_tokens=1))
    core.step()
    core.add_request(make_request("b", 3, max_tokens=1))
    assert core.wait_s() == 0.0
    assert _run(core).keys() == {"a", "b"}


def test_a_failing_step_fails_its_requests_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, runner, _ = _core(SchedulerConfig(max_num_seqs=2))
    runner.bad = {"b"}
    requests = {name: make_request(name, 3) for name in "abc"}
    for request in requests.values():
        core.add_request(request)
    with caplog.at_level(logging.ERROR):
        outputs = _run(core)
    for name in "ab":
        (failed,) = outputs[name]
        assert failed.finish_reason is FinishReason.ERROR
        assert failed.error == ("the step that computed this request failed: RuntimeError: kaput")
    assert _tokens(outputs["c"]) == expected_tokens(requests["c"])
    (record,) = caplog.records
    assert "2 requests and 6 tokens" in record.getMessage()


def test_a_failing_step_gives_its_blocks_back() -> None:
    core, runner, _ = _core()
    runner.bad = {"a"}
    core.add_request(make_request("a", 9))
    core.step()
    assert core.stats().scheduler.num_live_blocks == 0


def test_steps_that_keep_failing_end_the_engine() -> None:
    core, runner, _ = _core(SchedulerConfig(max_num_seqs=1))
    names = [f"r{i}" for i in range(MAX_FAILED_STEPS_IN_A_ROW)]
    runner.bad = set(names)
    for name in names:
        core.add_request(make_request(name, 3))
    for _ in names[1:]:
        core.step()
    with pytest.raises(EngineDeadError, match=r"3 steps in a row failed.*kaput"):
        core.step()


def test_a_good_step_between_failing_ones_forgives_them() -> None:
    core, runner, _ = _core(SchedulerConfig(max_num_seqs=1))
    for i in range(2 * MAX_FAILED_STEPS_IN_A_ROW):
        name = f"r{i}"
        if i % 2 == 0:
            runner.bad.add(name)
        core.add_request(make_request(name, 3, max_tokens=1))
    outputs = _run(core)
    assert len(outputs) == 2 * MAX_FAILED_STEPS_IN_A_ROW


def test_times_and_counters_add_up() -> None:
    core, _, _ = _core()
    core.add_request(make_request("a", 3, max_tokens=4))
    _run(core)
    stats = core.stats()
    assert stats.step_times.num_steps == 4  # the empty step that tells the runner counts not
    assert stats.step_times.schedule_s > 0.0
    assert stats.step_times.update_s > 0.0
    assert (stats.scheduler.prompt_tokens_total, stats.scheduler.generation_tokens_total) == (3, 4)


def test_an_observer_is_told_of_every_step_that_computes_something() -> None:
    core = EngineCore(Scheduler(SchedulerConfig(), make_limits()), FakeRunner(4), clock=lambda: 0.0)
    seen: list[tuple[int, float]] = []
    core.observe_steps(lambda plan, seconds: seen.append((len(plan.scheduled), seconds)))
    core.add_request(make_request("a", max_tokens=2))
    while core.has_work:
        core.step()
    assert [num_rows for num_rows, _ in seen] == [1, 1]
    assert all(seconds > 0 for _, seconds in seen)
    core.observe_steps(None)
    core.add_request(make_request("b", max_tokens=1))
    core.step()
    assert len(seen) == 2


class FailsAtTheFirstCopy(FakeRunner):
    """Fails as a whole before it has done anything, in the first step with copies."""

    has_failed = False

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        if plan.swap_out and not self.has_failed:
            self.has_failed = True
            raise RuntimeError("no copies")
        return super().execute(plan)


def test_what_a_failed_step_should_have_saved_is_computed_again() -> None:
    config = SchedulerConfig(max_num_batched_tokens=128, preemption_mode="swap")
    limits = make_limits(num_kv_blocks=10, num_swap_blocks=20)
    runner = FailsAtTheFirstCopy(block_size=4)
    core = EngineCore(Scheduler(config, limits, enable_prefix_caching=False), runner)
    requests = [make_request(f"{i}", 7 + 2 * i, max_tokens=14) for i in range(3)]
    for request in requests:
        core.add_request(request)
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    while core.has_work:
        for output in core.step():
            tokens[output.request_id] += output.token_ids
    assert runner.has_failed
    assert tokens["2"] == expected_tokens(requests[2])
