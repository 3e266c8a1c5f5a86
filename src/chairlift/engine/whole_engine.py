"""An engine core together with the text side of its model, for use in one process."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.config import EngineConfig
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.factory import build_core_of
from chairlift.engine.front import Front, build_front
from chairlift.engine.messages import EngineInfo
from chairlift.engine.phase_timer import PhaseCallback, PhaseTimer
from chairlift.models.loader import load_model
from chairlift.runner.weight_cache import Saving


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine that can compute, and its text side.

    Attributes:
        saving: Its weights on their way to the cache, if they were not there.
    """

    core: EngineCore
    info: EngineInfo
    front: Front
    saving: Saving | None = None


def build_engine(config: EngineConfig, on_phase: PhaseCallback | None = None) -> BuiltEngine:
    """Load a model and make an engine of it, tokenizer and chat template included.

    Args:
        on_phase: Told each part of the start, with its seconds, as it ends.

    Raises:
        ConfigError: The configuration does not go with the model or the machine.
        ModelLoadError: The model cannot be found or loaded.
    """
    timer = PhaseTimer(on_phase)
    with timer.phase("open model"):
        model = load_model(config.model.model)
    with timer.phase("tokenizer"):
        front = build_front(model)
    built = build_core_of(config, model, timer)
    return BuiltEngine(built.core, built.info, front, built.saving)
