"""Flags made from dataclass fields: names, types, help texts, and what they add up to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from chairlift.cli.options import (
    engine_options,
    field_help,
    sampling_options,
    sampling_params,
    server_options,
)
from chairlift.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.sampling_params import SamplingParams
from chairlift.server.settings import ServerSettings

RECORDS = (ModelConfig, CacheConfig, SchedulerConfig, SamplingParams, ServerSettings)


@dataclasses.dataclass
class Example:
    """Something.

    More words: not a field.

    Attributes:
        first: One line.
        second, third: Shared by two,
            over two lines; see ``max_num_seqs`` and ``other``.

    Raises:
        fourth: Not a field either.
    """


def run_engine(words: list[str], environment: dict[str, str] | None = None) -> EngineConfig:
    """Parse a command line into the configuration that the command gets."""
    seen: list[EngineConfig] = []

    @engine_options()
    def command(*, model: str = "m", config: Callable[[str], EngineConfig]) -> None:
        seen.append(config(model))

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, words, env=environment)
    if result.exception is not None and not seen:
        raise result.exception
    return seen[0]


def run_sampling(words: list[str]) -> SamplingParams:
    """Parse a command line into the sampling parameters that the command gets."""
    seen: list[SamplingParams] = []

    @sampling_options(defaults={"max_tokens": 7})
    def command(*, sampling: SamplingParams) -> None:
        seen.append(sampling)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not seen:
        raise result.exception
    return seen[0]


def test_field_help_reads_the_attributes_section_only() -> None:
    assert field_help(Example) == {
        "first": "One line.",
        "second": "Shared by two, over two lines; see --max-num-seqs and other.",
        "third": "Shared by two, over two lines; see --max-num-seqs and other.",
    }


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_every_field_that_becomes_a_flag_is_described(record: type) -> None:
    texts = field_help(record)
    assert [f.name for f in dataclasses.fields(record) if not texts.get(f.name)] == []


def test_no_flag_gives_the_default_configuration() -> None:
    assert run_engine([]) == EngineConfig(model=ModelConfig(model="m"))


def test_each_flag_sets_the_field_of_its_name() -> None:
    config = run_engine(
        [
            *("--dtype", "float32", "--max-model-len", "100", "--num-threads", "2"),
            *("--max-num-seqs", "3", "--max-num-batched-tokens", "5", "--batching", "static"),
            *("--block-size", "8", "--num-kv-blocks", "9", "--no-enable-prefix-caching"),
        ]
    )
    assert config == EngineConfig(
        ModelConfig("m", "float32", max_model_len=100),
        CacheConfig(block_size=8, num_kv_blocks=9, enable_prefix_caching=False),
        SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=5, batching="static"),
        num_threads=2,
    )


def test_the_environment_sets_defaults_that_flags_override() -> None:
    environment = {"CHAIRLIFT_MAX_NUM_SEQS": "5", "CHAIRLIFT_BLOCK_SIZE": "32"}
    config = run_engine(["--block-size", "8"], environment)
    assert (config.scheduler.max_num_seqs, config.cache.block_size) == (5, 8)


def test_switches_can_be_set_in_the_environment() -> None:
    assert not run_engine([], {"CHAIRLIFT_ENABLE_PREFIX_CACHING": "0"}).cache.enable_prefix_caching


def test_the_port_that_kubernetes_sets_is_left_alone() -> None:
    seen: list[ServerSettings] = []

    @server_options()
    def command(*, settings: ServerSettings) -> None:
        seen.append(settings)

    app = typer.Typer()
    app.command()(command)
    environment = {"CHAIRLIFT_PORT": "tcp://10.0.0.7:8000", "CHAIRLIFT_API_KEY": "one two"}
    CliRunner().invoke(app, [], env=environment)
    assert seen == [ServerSettings(api_key=("one", "two"))]


def test_values_out_of_bounds_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs must be an integer of at least 1, got 0"):
        run_engine(["--max-num-seqs", "0"])


def test_sampling_defaults_are_the_records_but_for_what_the_command_changes() -> None:
    assert run_sampling([]) == SamplingParams(max_tokens=7)


def test_flags_of_tuples_can_be_repeated() -> None:
    params = run_sampling(["--stop", "a", "--stop", "b", "--stop-token-ids", "3"])
    assert (params.stop, params.stop_token_ids) == (("a", "b"), (3,))


def test_logit_bias_is_given_as_id_and_value() -> None:
    params = run_sampling(["--logit-bias", "42=-100", "--logit-bias", "7=1.5"])
    assert params.logit_bias == {42: -100.0, 7: 1.5}


@pytest.mark.parametrize("item", ["42", "a=1", "1=b", "=", "1:2"])
def test_logit_bias_of_another_form_is_refused(item: str) -> None:
    with pytest.raises(InvalidParameterError, match="ID=VALUE"):
        sampling_params({"logit_bias": [item]})
