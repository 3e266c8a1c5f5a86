"""Flat option names."""

from __future__ import annotations

import pytest

from chairlift.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from chairlift.engine.options import engine_config
from chairlift.errors import ConfigError


def test_each_option_goes_to_the_part_that_has_it() -> None:
    config = engine_config("m", dtype="float32", block_size=8, max_num_seqs=4, num_threads=1)
    assert config == EngineConfig(
        model=ModelConfig(model="m", dtype="float32"),
        cache=CacheConfig(block_size=8),
        scheduler=SchedulerConfig(max_num_seqs=4),
        num_threads=1,
    )


def test_without_options_it_is_the_default_configuration() -> None:
    assert engine_config() == EngineConfig()


@pytest.mark.parametrize("name", ["max_seqs", "cache", "scheduler"])
def test_an_unknown_option_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown option {name}; .*max_num_seqs"):
        engine_config(**{name: 1})


def test_a_bad_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs"):
        engine_config(max_num_seqs=0)
