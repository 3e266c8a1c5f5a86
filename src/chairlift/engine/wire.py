"""What the engine process says besides the messages of every engine, and steps in little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chairlift.engine.messages import StepBatch
from chairlift.engine.stats import CoreStats
from chairlift.outputs import StepOutput


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The engine could not be built: the error's class name in ``chairlift.errors``, and text."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class LoopDied:
    """The engine loop has ended on its own."""

    message: str


@dataclass(frozen=True, slots=True)
class PhaseDone:
    """A part of the start is done."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PackedStep:
    """A :class:`StepBatch` in little: most outputs are one token and nothing else.

    Attributes:
        token_request_ids, token_ids: Those, as two lists.
        others: The rest, as plain tuples of a :class:`StepOutput`'s fields.
    """

    token_request_ids: list[str]
    token_ids: list[int]
    others: list[tuple[Any, ...]]
    now_s: float
    stats: CoreStats


def pack_step(batch: StepBatch) -> PackedStep:
    """Separate the plain outputs from the others.

    A request has one output in a batch, so that its order is kept. A plain output loses
    ``num_cached_tokens``, which the request's first output has said.
    """
    request_ids: list[str] = []
    token_ids: list[int] = []
    others: list[tuple[Any, ...]] = []
    for output in batch.outputs:
        request_id, new_ids, finish_reason, _, logprobs, prompt_logprobs, _, timings, *_ = output
        is_plain = finish_reason is None and timings is None and len(new_ids) == 1
        if is_plain and not logprobs and not prompt_logprobs:
            request_ids.append(request_id)
            token_ids.append(new_ids[0])
        else:
            others.append(tuple(output))
    return PackedStep(request_ids, token_ids, others, batch.now_s, batch.stats)


def unpack_step(packed: PackedStep) -> StepBatch:
    """The step batch again."""
    outputs = [
        StepOutput(request_id, (token_id,))
        for request_id, token_id in zip(packed.token_request_ids, packed.token_ids, strict=True)
    ]
    outputs += [StepOutput(*fields) for fields in packed.others]
    return StepBatch(outputs, packed.now_s, packed.stats)
