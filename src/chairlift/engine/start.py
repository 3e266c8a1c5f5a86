"""Starting an engine for an event loop: the engine elsewhere, the text side meanwhile here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from chairlift.config import EngineConfig
from chairlift.engine.front import Front, build_front
from chairlift.engine.messages import EngineInfo, EngineTransport
from chairlift.engine.phase_timer import PhaseCallback
from chairlift.engine.process import EngineProcess
from chairlift.engine.thread import EngineThread
from chairlift.models.loaded_model import LoadedModel
from chairlift.models.loader import load_model

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class StartReport:
    """How long the start took, part by part.

    Attributes:
        phases: Name and seconds of parts that follow one another; they sum up to ``total_s``.
        beside: Name and seconds of what was done in the front at the same time.
        total_s: From the call to readiness.
    """

    phases: tuple[tuple[str, float], ...]
    beside: tuple[tuple[str, float], ...]
    total_s: float


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine that can compute, and its text side."""

    transport: EngineTransport
    front: Front
    info: EngineInfo
    report: StartReport


async def start_engine(
    config: EngineConfig, in_process: bool, on_phase: PhaseCallback | None
) -> StartedEngine:
    """Start the engine loop in a process or in a thread, and build the text side.

    Raises:
        ConfigError, ModelLoadError, EngineError: As ``AsyncEngine.start``.
    """
    if in_process:
        return await _start_thread(config, on_phase)
    return await _start_process(config, on_phase)


async def _start_process(config: EngineConfig, on_phase: PhaseCallback | None) -> StartedEngine:
    started_s = time.monotonic()
    process = EngineProcess.spawn()
    try:
        # The model is found here, once, while the child imports what it needs.
        model, find_s = await asyncio.to_thread(_timed, load_model, config.model.model)
        located = replace(config, model=replace(config.model, model=str(model.path)))
        info, (front, tokenizer_s) = await asyncio.gather(
            process.start(located, on_phase), asyncio.to_thread(_timed, _warm_front, model)
        )
    except BaseException:
        process.kill()
        await process.close()
        raise
    report = _report(
        info.phases,
        (("find model", find_s), ("tokenizer", tokenizer_s)),
        time.monotonic() - started_s,
    )
    return StartedEngine(process, front, replace(info, model_name=model.name), report)


def _warm_front(model: LoadedModel) -> Front:
    front = build_front(model)
    front.warm_up()
    return front


async def _start_thread(config: EngineConfig, on_phase: PhaseCallback | None) -> StartedEngine:
    started_s = time.monotonic()
    from chairlift.engine.whole_engine import build_engine

    built = await asyncio.to_thread(build_engine, config, on_phase)
    report = _report(built.info.phases, (), time.monotonic() - started_s)
    return StartedEngine(EngineThread(built.core), built.front, built.info, report)


def _report(
    phases: tuple[tuple[str, float], ...],
    beside: tuple[tuple[str, float], ...],
    total_s: float,
) -> StartReport:
    rest_s = total_s - sum(seconds for _, seconds in phases)
    return StartReport((*phases, ("hand over", rest_s)), beside, total_s)


def _timed(function: Callable[[_Argument], _Result], argument: _Argument) -> tuple[_Result, float]:
    started_s = time.monotonic()
    result = function(argument)
    return result, time.monotonic() - started_s
