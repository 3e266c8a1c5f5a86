"""One flat set of names for everything that can be set about an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from chairlift.config import (
    DEFAULT_MODEL,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from chairlift.errors import ConfigError

_PARTS: Mapping[str, type] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
}


def engine_config(model: str = DEFAULT_MODEL, **options: Any) -> EngineConfig:
    """Build the configuration from the fields of its parts, by name.

    Args:
        model: Alias, .gguf file, Hugging Face folder or Hugging Face id.
        options: Fields of :class:`~chairlift.config.ModelConfig`,
            :class:`~chairlift.config.CacheConfig`, :class:`~chairlift.config.SchedulerConfig` and
            :class:`~chairlift.config.EngineConfig`, for example ``max_num_seqs=32``.

    Raises:
        ConfigError: There is no such option, or its value cannot work.
    """
    left = {"model": model} | options
    parts = {
        name: record(**{field: left.pop(field) for field in _fields(record) if field in left})
        for name, record in _PARTS.items()
    }
    own_fields = [name for name in _fields(EngineConfig) if name not in _PARTS]
    own = {name: left.pop(name) for name in own_fields if name in left}
    if left:
        known = [*own_fields, *(field for record in _PARTS.values() for field in _fields(record))]
        raise ConfigError(
            f"unknown option {', '.join(sorted(left))}; the options are {', '.join(sorted(known))}"
        )
    return EngineConfig(**parts, **own)


def _fields(record: type) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]
