"""Questions about requests, from the engine's front through its loop and back."""

from __future__ import annotations

import asyncio

import pytest
from tests.fakes import FakeRunner, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.engine_loop import run_engine_loop
from chairlift.engine.frames import FrameDecoder, encode_frame
from chairlift.engine.inspections import Inspections, belongs_to
from chairlift.engine.messages import (
    AbortRequests,
    AddRequests,
    Command,
    Inspect,
    Inspection,
    StepBatch,
    Stop,
)
from chairlift.errors import EngineDeadError
from chairlift.outputs import RequestReport


@pytest.mark.parametrize(
    ("core_id", "is_own"),
    [
        ("cmpl-a", True),
        ("chatcmpl-a", True),
        ("a", True),
        ("cmpl-a/3", True),
        ("cmpl-a-0", True),
        ("cmpl-a#2/1", True),
        ("cmpl-a-1#2/3", True),
        ("cmpl-ab", False),
        ("cmpl-a/x", False),
        ("cmpl-b", False),
    ],
)
def test_a_request_s_choices_are_found_by_the_id_its_client_knows(
    core_id: str, is_own: bool
) -> None:
    assert belongs_to("a")(core_id) is is_own


def test_an_id_is_taken_literally() -> None:
    assert not belongs_to("a.c")("cmpl-abc")


class Turns:
    """One list of commands per turn, then ``Stop``."""

    def __init__(self, *turns: list[Command]) -> None:
        self.turns = list(turns)

    def receive(self, timeout_s: float | None) -> list[Command]:
        return self.turns.pop(0) if self.turns else [Stop()]


def inspections_of(*turns: list[Command]) -> list[Inspection]:
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=1), make_limits())
    sent: list[StepBatch | Inspection] = []
    core = EngineCore(scheduler, FakeRunner(block_size=4), clock=lambda: 1.0)
    run_engine_loop(core, Turns(*turns), sent.append)
    return [message for message in sent if isinstance(message, Inspection)]


def test_the_loop_answers_after_the_commands_before_the_question() -> None:
    first, second = inspections_of(
        [AddRequests((make_request("a"), make_request("b"))), Inspect(7)],
        [AbortRequests(("a",)), Inspect(8, "a")],
    )
    assert (first.ticket, [r.state for r in first.reports]) == (7, ["waiting", "waiting"])
    (report,) = second.reports
    assert (second.ticket, report.request_id, report.finish_reason) == (8, "a", "abort")
    assert [event.kind for event in report.events] == [
        "queued",
        "scheduled",
        "first_token",
        "finished",
    ]


def test_all_requests_come_without_their_events() -> None:
    (inspection,) = inspections_of([AddRequests((make_request("a"),)), Inspect(1)])
    assert inspection.reports[0].events == ()


def test_an_answer_is_the_same_after_the_wire() -> None:
    (inspection,) = inspections_of([AddRequests((make_request("a"),)), Inspect(1, "a")])
    assert list(FrameDecoder().feed(encode_frame(inspection))) == [inspection]


REPORT = RequestReport("a", "running", "", 0, 0.0, 1, 0, 0, 0)


async def test_answers_go_to_those_who_asked() -> None:
    inspections, sent = Inspections(), list[Inspect]()
    one = asyncio.ensure_future(inspections.ask("a", sent.append))
    two = asyncio.ensure_future(inspections.ask(None, sent.append))
    await asyncio.sleep(0)
    inspections.answer(Inspection(sent[1].ticket, ()))
    inspections.answer(Inspection(sent[0].ticket, (REPORT,)))
    assert (await one, await two) == ((REPORT,), ())


async def test_whoever_waits_learns_of_the_engine_s_end() -> None:
    inspections, sent = Inspections(), list[Inspect]()
    asking = asyncio.ensure_future(inspections.ask("a", sent.append))
    await asyncio.sleep(0)
    inspections.fail("the engine has died: test")
    with pytest.raises(EngineDeadError, match="died: test"):
        await asking
    inspections.answer(Inspection(sent[0].ticket, ()))
