"""Messages survive the wire, however the stream is cut."""

from __future__ import annotations

import pytest
from tests.unit.engine.test_stats import SCHEDULER

from chairlift.engine.frames import FrameDecoder, encode_frame
from chairlift.engine.messages import AbortRequests, StepBatch, Stop
from chairlift.engine.stats import CoreStats, StepTimes
from chairlift.engine.wire import pack_step, unpack_step
from chairlift.outputs import FinishReason, RequestTimings, StepOutput, TokenLogprob

STATS = CoreStats(SCHEDULER, StepTimes(1, 0.25))
PLAIN = [StepOutput("a", (5,)), StepOutput("b", (6,))]
OTHERS = [
    StepOutput("c", (7,), FinishReason.STOP, 7, timings=RequestTimings(1.0, 2.0, 3.0, 4.0)),
    StepOutput("d", (8,), logprobs=(TokenLogprob(8, -0.5, 1, ((8, -0.5),)),)),
    StepOutput("e", (), prompt_logprobs=(TokenLogprob(8, -0.5, 1, ()),)),
    StepOutput("f", (1, 2)),
    StepOutput("g", finish_reason=FinishReason.ERROR, error="no"),
    StepOutput("h", finish_reason=FinishReason.ERROR, error="late", is_overdue=True),
]


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_messages_come_out_as_they_went_in(cut: int) -> None:
    messages = [AbortRequests(("a", "b")), Stop(), AbortRequests(("x" * 1000,))]
    stream = b"".join(encode_frame(message) for message in messages)
    decoder = FrameDecoder()
    received = [m for i in range(0, len(stream), cut) for m in decoder.feed(stream[i : i + cut])]
    assert received == messages


def test_a_step_batch_is_the_same_after_packing() -> None:
    batch = StepBatch([PLAIN[0], *OTHERS, PLAIN[1]], 12.5, STATS)
    (packed,) = FrameDecoder().feed(encode_frame(pack_step(batch)))
    again = unpack_step(packed)
    assert sorted(again.outputs) == sorted(batch.outputs, key=lambda output: output.request_id)
    assert (again.now_s, again.stats) == (12.5, STATS)


def test_plain_tokens_are_packed_tightly() -> None:
    batch = StepBatch([StepOutput(f"request-{i}", (i,)) for i in range(64)], 0.0, STATS)
    packed = pack_step(batch)
    assert packed.others == []
    assert len(encode_frame(packed)) < 64 * 24 + 1000
