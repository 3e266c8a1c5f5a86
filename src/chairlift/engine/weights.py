"""Gets a model's weights into memory: from the cache of packed ones, or from the model's files."""

from __future__ import annotations

import logging
from dataclasses import replace

from chairlift.config import EngineConfig
from chairlift.engine.phase_timer import PhaseTimer
from chairlift.kernels.cpu_model import CpuModel
from chairlift.kernels.threads import usable_threads
from chairlift.models.loaded_model import LoadedModel
from chairlift.runner.weight_cache import WeightCache, weight_cache, weight_key

_LOGGER = logging.getLogger(__name__)


def load_weights(config: EngineConfig, source: LoadedModel, timer: PhaseTimer) -> CpuModel:
    """Make the model of an engine, its weights loaded.

    Args:
        timer: Counts the parts of the start: ``cached weights``, or ``weights``.

    Raises:
        ModelLoadError: A weight is missing.
    """
    model = CpuModel(
        source.spec,
        dtype=config.model.dtype,
        num_threads=config.num_threads or usable_threads(),
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
    )
    cache = weight_cache(config.model.weight_cache_bytes, model)
    if cache is None:
        _load_from_source(source, model, timer)
    else:
        _load_through(cache, _key(config, source, model), source, model, timer)
    return model


def _load_through(
    cache: WeightCache, key: str | None, source: LoadedModel, model: CpuModel, timer: PhaseTimer
) -> None:
    if key is not None and cache.holds(key):
        with timer.phase("cached weights"):
            if cache.load(key, model):
                return
    _load_from_source(source, model, timer)
    if key is not None:
        cache.save_beside(key, model)


def _load_from_source(source: LoadedModel, model: CpuModel, timer: PhaseTimer) -> None:
    with timer.phase("weights"):
        for tensor in source.weights:
            model.set_weight(tensor)
        model.finish_loading()


def _key(config: EngineConfig, source: LoadedModel, model: CpuModel) -> str | None:
    # All but what the packed bytes do not depend on.
    settings = replace(config.model, model="", max_model_len=0, weight_cache_bytes=0)
    try:
        return weight_key(source, model, settings)
    except OSError as error:
        _LOGGER.warning("packed weights are not looked up: %s", error)
        return None
