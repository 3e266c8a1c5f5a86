"""The loop between an inbox and the core."""

from __future__ import annotations

import pytest
from tests.fakes import FakeRunner, expected_tokens, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.engine_loop import run_engine_loop
from chairlift.engine.messages import AbortRequests, AddRequests, Command, StepBatch, Stop
from chairlift.errors import EngineDeadError
from chairlift.outputs import FinishReason, StepOutput


class ScriptedInbox:
    """Gives one list of commands per turn, then ``Stop`` when the loop would wait for ever."""

    def __init__(self, *turns: list[Command]) -> None:
        self.turns = list(turns)
        self.timeouts: list[float | None] = []

    def receive(self, timeout_s: float | None) -> list[Command]:
        self.timeouts.append(timeout_s)
        if self.turns:
            return self.turns.pop(0)
        return [Stop()] if timeout_s is None else []


def _core(runner: FakeRunner | None = None) -> EngineCore:
    scheduler = Scheduler(SchedulerConfig(), make_limits())
    return EngineCore(scheduler, runner or FakeRunner(block_size=4))


def _run(core: EngineCore, inbox: ScriptedInbox) -> list[StepBatch]:
    batches: list[StepBatch] = []
    run_engine_loop(core, inbox, batches.append, clock=lambda: 5.0)
    return batches


def _outputs(batches: list[StepBatch], request_id: str) -> list[StepOutput]:
    return [o for batch in batches for o in batch.outputs if o.request_id == request_id]


def test_it_waits_when_idle_and_runs_while_there_is_work() -> None:
    request = make_request("a", 3)
    inbox = ScriptedInbox([AddRequests((request,))])
    batches = _run(_core(), inbox)
    outputs = _outputs(batches, "a")
    assert [t for o in outputs for t in o.token_ids] == expected_tokens(request)
    # The last turn with work tells the runner that the request is over.
    assert inbox.timeouts == [None, 0.0, 0.0, 0.0, 0.0, None]
    assert batches[0].now_s == 5.0


def test_an_idle_engine_says_that_it_is_there() -> None:
    inbox = ScriptedInbox([], [], [Stop()])
    batches: list[StepBatch] = []
    run_engine_loop(_core(), inbox, batches.append, heartbeat_s=2.0)
    assert inbox.timeouts == [2.0, 2.0, 2.0]
    assert [batch.outputs for batch in batches] == [[], []]


def test_the_last_batch_shows_an_idle_engine() -> None:
    batches = _run(_core(), ScriptedInbox([AddRequests((make_request("a", 3),))]))
    assert batches[-1].stats.scheduler.num_running == 0
    assert batches[-1].stats.scheduler.num_live_blocks == 0


def test_requests_that_come_together_start_together() -> None:
    requests = (make_request("a", 3), make_request("b", 3))
    batches = _run(_core(), ScriptedInbox([AddRequests(requests)]))
    assert [output.request_id for output in batches[0].outputs] == ["a", "b"]


def test_an_abort_takes_effect_before_the_next_step() -> None:
    inbox = ScriptedInbox([AddRequests((make_request("a", 3),))], [AbortRequests(("a", "x"))])
    batches = _run(_core(), inbox)
    outputs = _outputs(batches, "a")
    assert [output.finish_reason for output in outputs] == [None, FinishReason.ABORT]


def test_a_request_that_the_scheduler_refuses_fails_alone() -> None:
    good = make_request("good", 3)
    inbox = ScriptedInbox([AddRequests((make_request("huge", 500), good))])
    batches = _run(_core(), inbox)
    (refused,) = _outputs(batches, "huge")
    assert refused.finish_reason is FinishReason.ERROR
    assert "at most 33 fit" in (refused.error or "")
    assert len(_outputs(batches, "good")) == 4


def test_stop_ends_it_whatever_is_running() -> None:
    inbox = ScriptedInbox([AddRequests((make_request("a", 3),))], [Stop()])
    assert len(_run(_core(), inbox)) == 1


def test_a_core_that_dies_ends_the_loop_with_the_reason() -> None:
    class Broken(FakeRunner):
        def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
            raise RuntimeError("kaput")

    turns: list[list[Command]] = [[AddRequests((make_request(f"r{i}", 3),))] for i in range(3)]
    with pytest.raises(EngineDeadError, match="kaput"):
        _run(_core(Broken(block_size=4)), ScriptedInbox(*turns))
