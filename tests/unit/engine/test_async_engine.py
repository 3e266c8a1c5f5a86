"""The asynchronous engine over a transport played by the test."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.engine.test_stats import SCHEDULER

from chairlift.config import EngineLimits
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.front import Front
from chairlift.engine.messages import (
    AbortRequests,
    AddRequests,
    Command,
    EngineInfo,
    EngineListener,
    StepBatch,
)
from chairlift.engine.start import StartedEngine, StartReport
from chairlift.engine.stats import CoreStats, StepTimes
from chairlift.errors import (
    EngineDeadError,
    EngineDrainingError,
    EngineOverloadedError,
    RequestFailedError,
)
from chairlift.inputs import CoreRequest, GenerateRequest
from chairlift.outputs import FinishReason, RequestOutput, StepOutput
from chairlift.sampling_params import SamplingParams


def _stats(num_running: int) -> CoreStats:
    return CoreStats(replace(SCHEDULER, num_running=num_running), StepTimes())


class Transport:
    """Keeps what was sent; the test says what the loop answers."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.listener: EngineListener | None = None
        self.is_closed = False

    def attach(self, listener: EngineListener) -> None:
        self.listener = listener

    def send(self, command: Command) -> None:
        self.commands.append(command)

    async def close(self) -> None:
        self.is_closed = True

    @property
    def added(self) -> list[CoreRequest]:
        return [r for c in self.commands if isinstance(c, AddRequests) for r in c.requests]

    @property
    def aborted(self) -> list[str]:
        return [i for c in self.commands if isinstance(c, AbortRequests) for i in c.request_ids]

    def step(self, *outputs: StepOutput, num_running: int = 0) -> None:
        assert self.listener is not None
        self.listener.on_step(StepBatch(list(outputs), 1.0, _stats(num_running)))

    def die(self) -> None:
        assert self.listener is not None
        self.listener.on_death(EngineDeadError("the engine has died: test"))


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
async def engine(front: Front, transport: Transport) -> AsyncEngine:
    info = EngineInfo(
        limits=EngineLimits(259, 64, 4, 64, max_num_waiting=3),
        model_name=front.model_name,
        quantization="F32",
        dtype="float32",
        isa="portable",
        num_threads=1,
        weight_bytes=1,
        kv_pool_bytes=1,
        kv_pool_reason="test",
        stats=_stats(0),
    )
    return AsyncEngine(StartedEngine(transport, front, info, StartReport((), (), 0.0, 0.0)))


def _request(request_id: str = "r", **params: object) -> GenerateRequest:
    values = {"max_tokens": 9, "seed": 1} | params
    return GenerateRequest(request_id, (65,), SamplingParams(**values), 0.5)  # type: ignore[arg-type]


async def _tick() -> None:
    """Let the event loop do what is due."""
    for _ in range(3):
        await asyncio.sleep(0)


async def _texts(stream: Sequence[RequestOutput] | object) -> list[str]:
    return [c.text async for piece in stream for c in piece.choices]  # type: ignore[attr-defined]


async def test_requests_of_one_turn_of_the_event_loop_go_out_as_one_message(
    engine: AsyncEngine, transport: Transport
) -> None:
    streams = [engine.generate(_request("a")), engine.generate(_request("b", n=2))]
    await _tick()
    assert len(transport.commands) == 1
    assert [r.request_id for r in transport.added] == ["a", "b/0", "b/1"]
    assert [s.abort() for s in streams] == [None, None]


async def test_a_stream_gives_pieces_as_steps_bring_them(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request())
    transport.step(StepOutput("r", (72,)))
    assert (await anext(stream)).choices[0].text == "H"
    waiting = asyncio.ensure_future(anext(stream))
    await _tick()
    assert not waiting.done()
    transport.step(StepOutput("r", (105,), FinishReason.LENGTH))
    last = await waiting
    assert (last.choices[0].text, last.finished) == ("i", True)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert transport.aborted == []


async def test_what_piled_up_comes_as_one_piece(engine: AsyncEngine, transport: Transport) -> None:
    stream = engine.generate(_request())
    transport.step(StepOutput("r", (72,)))
    transport.step(StepOutput("r", (105,)))
    transport.step(StepOutput("r", (33,), FinishReason.LENGTH))
    assert await _texts(stream) == ["Hi!"]


async def test_without_streaming_nobody_is_woken_before_the_end(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request(), stream=False)
    waiting = asyncio.ensure_future(anext(stream))
    transport.step(StepOutput("r", (72,)))
    await _tick()
    assert not waiting.done()
    transport.step(StepOutput("r", (105,), FinishReason.LENGTH))
    piece = await waiting
    assert (piece.choices[0].text, piece.choices[0].token_ids) == ("Hi", (72, 105))


async def test_closing_a_stream_aborts_its_request(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request(n=2))
    await _tick()
    await stream.aclose()
    await stream.aclose()
    assert transport.aborted == ["r/0", "r/1"]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_leaving_before_the_request_was_sent_sends_it_and_its_end(
    engine: AsyncEngine, transport: Transport
) -> None:
    async with engine.generate(_request()):
        pass
    await _tick()
    assert [type(command) for command in transport.commands] == [AddRequests, AbortRequests]


async def test_cancelling_the_waiting_task_aborts_the_request(
    engine: AsyncEngine, transport: Transport
) -> None:
    task = asyncio.ensure_future(_texts(engine.generate(_request())))
    await _tick()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.aborted == ["r"]


async def test_dropping_a_stream_aborts_its_request(
    engine: AsyncEngine, transport: Transport
) -> None:
    engine.generate(_request())
    gc.collect()
    await _tick()
    assert transport.aborted == ["r"]


async def test_a_finished_stream_is_not_aborted_when_it_is_closed(
    engine: AsyncEngine, transport: Transport
) -> None:
    async with engine.generate(_request()) as stream:
        transport.step(StepOutput("r", (72,), FinishReason.LENGTH))
        assert await _texts(stream) == ["H"]
    assert transport.aborted == []


async def test_a_stop_string_aborts_in_the_core_and_the_late_end_is_ignored(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request(stop=("i",)))
    transport.step(StepOutput("r", (72,)))
    transport.step(StepOutput("r", (105,)), num_running=1)
    assert transport.aborted == ["r"]
    assert engine.stats().num_running + engine.stats().num_waiting == 1
    transport.step(StepOutput("r", finish_reason=FinishReason.ABORT))
    assert await _texts(stream) == ["H"]
    assert engine.stats().num_waiting == 0


async def test_a_live_id_that_comes_again_is_answered_under_its_own_name(
    engine: AsyncEngine, transport: Transport
) -> None:
    first, second = engine.generate(_request()), engine.generate(_request())
    await _tick()
    one, other = (r.request_id for r in transport.added)
    assert one != other
    transport.step(
        StepOutput(other, (66,), FinishReason.LENGTH), StepOutput(one, (65,), FinishReason.LENGTH)
    )
    assert (await anext(first)).choices[0].text == "A"
    piece = await anext(second)
    assert (piece.choices[0].text, piece.request_id) == ("B", "r")


async def test_an_id_is_not_used_again_before_the_core_has_ended_it(
    engine: AsyncEngine, transport: Transport
) -> None:
    await engine.generate(_request()).aclose()
    stream = engine.generate(_request())
    await _tick()
    again = transport.added[-1].request_id
    transport.step(StepOutput("r", finish_reason=FinishReason.ABORT))
    transport.step(StepOutput(again, (72,), FinishReason.LENGTH))
    assert await _texts(stream) == ["H"]


async def test_an_id_that_looks_like_another_s_choice_is_told_apart(
    engine: AsyncEngine, transport: Transport
) -> None:
    streams = [engine.generate(_request("r", n=2)), engine.generate(_request("r/0"))]
    await _tick()
    assert len({r.request_id for r in transport.added}) == 3
    for stream in streams:
        stream.abort()


async def test_abort_by_id_gives_the_stream_a_last_piece(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request())
    assert engine.abort("r")
    assert not engine.abort("unknown")
    transport.step(StepOutput("r", finish_reason=FinishReason.ABORT))
    piece = await anext(stream)
    assert piece.choices[0].finish_reason is FinishReason.ABORT


async def test_a_failed_request_raises_in_its_own_stream(
    engine: AsyncEngine, transport: Transport
) -> None:
    bad, good = engine.generate(_request("bad")), engine.generate(_request("good"))
    transport.step(
        StepOutput("bad", finish_reason=FinishReason.ERROR, error="NaN"),
        StepOutput("good", (72,), FinishReason.LENGTH),
    )
    with pytest.raises(RequestFailedError, match="bad failed: NaN"):
        await anext(bad)
    with pytest.raises(StopAsyncIteration):
        await anext(bad)
    assert await _texts(good) == ["H"]


async def test_requests_over_the_bound_are_refused_and_nothing_is_sent(
    engine: AsyncEngine, transport: Transport
) -> None:
    streams = [engine.generate(_request(f"r{i}")) for i in range(3)]
    with pytest.raises(EngineOverloadedError, match="3 requests are waiting") as info:
        engine.generate(_request("late"))
    assert info.value.retry_after_s >= 1.0
    with pytest.raises(EngineOverloadedError):
        engine.check_admission()
    await _tick()
    assert len(transport.added) == 3
    transport.step(num_running=1)  # one of them runs now
    engine.check_admission()
    for stream in streams:
        stream.abort()


async def test_the_death_of_the_engine_reaches_every_stream(
    engine: AsyncEngine, transport: Transport
) -> None:
    streams = [engine.generate(_request(f"r{i}")) for i in range(2)]
    waiting = asyncio.ensure_future(anext(streams[0]))
    await _tick()
    transport.die()
    with pytest.raises(EngineDeadError, match="test"):
        await waiting
    with pytest.raises(EngineDeadError, match="test"):
        await anext(streams[1])
    assert not engine.is_alive
    assert "test" in str(await engine.wait_dead())
    with pytest.raises(EngineDeadError):
        engine.generate(_request())


async def test_draining_waits_for_what_runs_and_takes_nothing_new(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request())
    drained = asyncio.ensure_future(engine.drain(60.0))
    await _tick()
    with pytest.raises(EngineDrainingError):
        engine.generate(_request("late"))
    assert engine.is_draining
    assert not drained.done()
    transport.step(StepOutput("r", (72,), FinishReason.LENGTH))
    assert await drained == 0
    assert await _texts(stream) == ["H"]


async def test_what_does_not_end_in_time_is_aborted(
    engine: AsyncEngine, transport: Transport
) -> None:
    stream = engine.generate(_request())
    drained = asyncio.ensure_future(engine.drain(0.0))
    while not transport.aborted:
        await asyncio.sleep(0)
    transport.step(StepOutput("r", finish_reason=FinishReason.ABORT))
    assert await drained == 1
    assert (await anext(stream)).choices[0].finish_reason is FinishReason.ABORT


async def test_closing_the_engine_ends_streams_and_the_transport(
    engine: AsyncEngine, transport: Transport
) -> None:
    waiting = asyncio.ensure_future(_texts(engine.generate(_request())))
    await _tick()
    await engine.close()
    assert await waiting == []
    assert transport.is_closed
    assert not engine.is_alive


async def test_a_step_reaches_all_its_streams_at_once(
    engine: AsyncEngine, transport: Transport
) -> None:
    streams = [engine.generate(_request(f"r{i}")) for i in range(3)]
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await _tick()
    transport.step(*[StepOutput(f"r{i}", (72 + i,)) for i in range(3)], num_running=3)
    pieces = await asyncio.gather(*waiting)
    assert [piece.choices[0].text for piece in pieces] == ["H", "I", "J"]
    for stream in streams:
        stream.abort()
