"""What crosses between the front (requests, text) and the engine loop, in threads or processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from chairlift.config import EngineLimits
from chairlift.engine.stats import CoreStats
from chairlift.errors import EngineDeadError
from chairlift.inputs import CoreRequest
from chairlift.outputs import RequestReport, StepOutput


@dataclass(frozen=True, slots=True)
class AddRequests:
    """New requests, in order of arrival."""

    requests: tuple[CoreRequest, ...]


@dataclass(frozen=True, slots=True)
class AbortRequests:
    """Requests that nobody waits for any more; unknown ids are ignored."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspect:
    """A question about requests; an :class:`Inspection` of the same ticket answers it.

    Attributes:
        request_id: As clients name it; ``None``: all requests, without their events.
    """

    ticket: int
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """The answer to an :class:`Inspect`, after the commands before it and before the next step."""

    ticket: int
    reports: tuple[RequestReport, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop, whatever is running."""


Command: TypeAlias = AddRequests | AbortRequests | Inspect | Stop


@dataclass(frozen=True, slots=True)
class StepBatch:
    """All that the front learns of one turn of the loop.

    Attributes:
        outputs: What requests got out of it; each request's last one has a finish reason.
        now_s: When it ended, on the engine's monotonic clock.
        stats: Of the core afterwards.
    """

    outputs: list[StepOutput]
    now_s: float
    stats: CoreStats


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is known of an engine once it can compute.

    Attributes:
        limits: The one bound for requests.
        model_name: What users call the model.
        quantization: How its weights are stored in its files.
        dtype: Arithmetic it is computed in.
        isa: Instruction set of the kernels.
        num_threads: Threads that compute.
        weight_bytes: Memory of the weights as the kernels keep them.
        kv_pool_bytes: Memory of the KV pool once all of it has been used.
        kv_pool_reason: Which setting or limit decided its size.
        stats: Before the first step.
        kv_cache_dtype: What keys and values are kept as.
        phases: Name and seconds of each part of the start, in order.
        other_bytes: Memory of the engine's process besides weights and pool, once a step has been
            as large as it may: interpreter, libraries, activations, logits.
    """

    limits: EngineLimits
    model_name: str
    quantization: str
    dtype: str
    isa: str
    num_threads: int
    weight_bytes: int
    kv_pool_bytes: int
    kv_pool_reason: str
    stats: CoreStats
    kv_cache_dtype: str = ""
    phases: tuple[tuple[str, float], ...] = ()
    other_bytes: int = 0


class EngineListener(Protocol):
    """The front, as a transport sees it; called on the front's event loop."""

    def on_step(self, batch: StepBatch) -> None:
        """A turn of the loop has ended."""
        ...

    def on_inspection(self, inspection: Inspection) -> None:
        """A question has been answered."""
        ...

    def on_death(self, error: EngineDeadError) -> None:
        """The loop has ended, and not because it was told to. Called at most once, last."""
        ...


class EngineTransport(Protocol):
    """A started engine loop somewhere else; its methods are called on the front's event loop."""

    def attach(self, listener: EngineListener) -> None:
        """Say who listens, once, before the first command."""
        ...

    def send(self, command: Command) -> None:
        """Hand over a command, in order; never blocks. Ignored once the loop has ended."""
        ...

    async def close(self) -> None:
        """End the loop and wait until it has ended; may be called again."""
        ...
