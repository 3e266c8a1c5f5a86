"""Starting an engine for an event loop: the engine elsewhere, the text side meanwhile here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from chairlift.config import EngineConfig
from chairlift.engine.child import EngineChild
from chairlift.engine.front import Front, build_front
from chairlift.engine.messages import EngineInfo, EngineTransport
from chairlift.engine.phase_timer import PhaseCallback
from chairlift.engine.process import EngineProcess
from chairlift.models.loader import load_model

FrontCallback = Callable[[Front], None]


@dataclass(frozen=True, slots=True)
class StartReport:
    """How long the start took, part by part.

    Attributes:
        phases: Name and seconds of parts that follow one another; they sum up to ``total_s``.
        beside: Name and seconds of what was done in the front at the same time.
        started_s: When the engine's process, or its thread, was started, in monotonic seconds.
        total_s: From then to readiness.
    """

    phases: tuple[tuple[str, float], ...]
    beside: tuple[tuple[str, float], ...]
    started_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine that can compute, and its text side."""

    transport: EngineTransport
    front: Front
    info: EngineInfo
    report: StartReport


async def start_engine(
    config: EngineConfig,
    in_process: bool,
    on_phase: PhaseCallback | None,
    on_front: FrontCallback | None = None,
    child: EngineChild | None = None,
) -> StartedEngine:
    """Start the engine loop in a process or in a thread, and build the text side.

    Args:
        on_front: Told of the text side as soon as it is there, on another thread; the start is not
            over before it returns.
        child: A process that has been started already; one is started if not given.

    Raises:
        ConfigError, ModelLoadError, EngineError: As ``AsyncEngine.start``.
    """
    if in_process:
        return await _start_thread(config, on_phase, on_front)
    return await _start_process(config, on_phase, on_front, child or EngineChild.spawn())


async def _start_process(
    config: EngineConfig,
    on_phase: PhaseCallback | None,
    on_front: FrontCallback | None,
    child: EngineChild,
) -> StartedEngine:
    process = EngineProcess(child)
    try:
        if not child.is_configured:
            await asyncio.to_thread(child.configure, config)
        info, (front, front_s) = await asyncio.gather(
            process.start(on_phase),
            asyncio.to_thread(_timed_front, config.model.model, on_front),
        )
    except BaseException:
        process.kill()
        await process.close()
        raise
    report = _report(info.phases, (("text side", front_s),), child.spawned_s)
    return StartedEngine(process, front, replace(info, model_name=front.model_name), report)


def _timed_front(model: str, on_front: FrontCallback | None) -> tuple[Front, float]:
    started_s = time.monotonic()
    front = build_front(load_model(model))
    front.warm_up()
    if on_front is not None:
        on_front(front)
    return front, time.monotonic() - started_s


async def _start_thread(
    config: EngineConfig, on_phase: PhaseCallback | None, on_front: FrontCallback | None
) -> StartedEngine:
    started_s = time.monotonic()
    from chairlift.engine.thread import EngineThread  # these bring the scheduler and the kernels
    from chairlift.engine.whole_engine import build_engine

    built = await asyncio.to_thread(build_engine, config, on_phase)
    if on_front is not None:
        await asyncio.to_thread(on_front, built.front)
    report = _report(built.info.phases, (), started_s)
    return StartedEngine(EngineThread(built.core), built.front, built.info, report)


def _report(
    phases: tuple[tuple[str, float], ...],
    beside: tuple[tuple[str, float], ...],
    started_s: float,
) -> StartReport:
    total_s = time.monotonic() - started_s
    rest_s = total_s - sum(seconds for _, seconds in phases)
    return StartReport((*phases, ("hand over", rest_s)), beside, started_s, total_s)
