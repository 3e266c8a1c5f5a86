"""Gets a model's weights into memory: from the cache of packed ones, or from the model's files."""

from __future__ import annotations

import logging
from dataclasses import replace

from chairlift.config import EngineConfig, Quantization
from chairlift.engine.phase_timer import PhaseTimer
from chairlift.errors import ConfigError
from chairlift.kernels.cpu_model import CpuModel
from chairlift.kernels.file_formats import BITS_PER_WEIGHT, types_to_keep
from chairlift.kernels.threads import usable_threads
from chairlift.model_spec import TensorType
from chairlift.models.loaded_model import LoadedModel, ModelFormat
from chairlift.runner.weight_cache import Saving, weight_cache, weight_key

_LOGGER = logging.getLogger(__name__)


def load_weights(
    config: EngineConfig, source: LoadedModel, timer: PhaseTimer
) -> tuple[CpuModel, Saving | None]:
    """Make the model of an engine, its weights loaded.

    Args:
        timer: Counts the parts of the start: ``cached weights``, or ``weights``.

    Returns:
        The model, and what is written to the cache beside the work, if anything is.

    Raises:
        ConfigError: The quantization does not go with the model.
        ModelLoadError: A weight is missing.
    """
    model = CpuModel(
        source.spec,
        dtype=config.model.dtype,
        kv_cache_dtype=config.cache.kv_cache_dtype,
        quantization="int8" if config.model.quantization == "int8" else "none",
        num_threads=config.num_threads or usable_threads(),
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        kept_types=_kept_types(config.model.quantization, source),
    )
    cache = weight_cache(config.model.weight_cache_bytes, model)
    key = None if cache is None else _key(config, source, model)
    if cache is None or key is None:
        _load_from_source(source, model, timer)
        return model, None
    if cache.holds(key):
        with timer.phase("cached weights"):
            if cache.load(key, model):
                return model, None
    _load_from_source(source, model, timer)
    return model, Saving(cache, key, model)


def _kept_types(quantization: Quantization, source: LoadedModel) -> dict[str, TensorType]:
    """Tensors to keep as they are in the file, by name."""
    if quantization != "gguf":
        return {}
    kept = types_to_keep(source.weights)
    if source.format is not ModelFormat.GGUF or not kept:
        keepable = ", ".join(BITS_PER_WEIGHT)
        raise ConfigError(
            f"quantization gguf needs a GGUF file with weights in {keepable}, but {source.name} "
            f"holds {source.quantization}: choose such a file, or leave the quantization out"
        )
    matrices = [tensor for tensor in source.weights if len(tensor.shape) == 2]
    if len(kept) < len(matrices):
        _LOGGER.info(
            "%d of %d matrices are kept as in the file, the others in bfloat16",
            len(kept),
            len(matrices),
        )
    return kept


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
