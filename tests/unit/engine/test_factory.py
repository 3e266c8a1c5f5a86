"""What is joined at the start, and that the warm-up leaves no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chairlift.engine.engine_core import EngineCore
from chairlift.engine.factory import BuiltCore, build_engine_core
from chairlift.engine.options import engine_config
from chairlift.errors import ConfigError
from chairlift.inputs import CoreRequest
from chairlift.outputs import StepOutput
from chairlift.sampling_params import SamplingParams

PROMPT = tuple(b"It is ")


def _build(model: Path, **options: Any) -> BuiltCore:
    values = {"num_kv_blocks": 8, "num_threads": 1, "max_num_seqs": 4} | options
    return build_engine_core(engine_config(str(model), **values))


def _run(core: EngineCore, *prompt: int, max_tokens: int) -> list[int]:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    core.add_request(CoreRequest("r", prompt, params, 0.0, eos_token_ids=()))
    outputs: list[StepOutput] = []
    while core.has_work:
        outputs += core.step()
    return [token for output in outputs for token in output.token_ids]


def test_limits_and_sizes_are_those_of_model_and_configuration(successor_model_path: Path) -> None:
    info = _build(successor_model_path, block_size=4, max_model_len=100, dtype="float32").info
    limits = info.limits
    assert (limits.vocab_size, limits.max_model_len, limits.block_size) == (259, 100, 4)
    assert limits.num_kv_blocks == 8
    # 2 layers, K and V, 2 heads of 16 floats, 32 tokens.
    assert info.kv_pool_bytes == 2 * 2 * 2 * 16 * 4 * 32
    assert (info.kv_pool_reason, info.dtype, info.num_threads) == ("num_kv_blocks", "float32", 1)


def test_without_a_given_length_the_model_s_own_holds(successor_model_path: Path) -> None:
    assert _build(successor_model_path).info.limits.max_model_len == 8192


def test_the_warm_up_leaves_no_trace(successor_model_path: Path) -> None:
    built = _build(successor_model_path)
    stats = built.core.stats()
    assert stats == built.info.stats
    assert stats.scheduler.num_free_blocks == 8
    assert stats.step_times.forward_s == 0.0
    assert not built.core.has_work
    # All slots are free: as many requests as there are run at once.
    for i in range(4):
        params = SamplingParams(max_tokens=1, temperature=0.0)
        built.core.add_request(CoreRequest(f"r{i}", (65,), params, 0.0, ()))
    assert len(built.core.step()) == 4


@pytest.mark.parametrize(
    ("num_kv_blocks", "block_size", "max_model_len"),
    [(1, 1, 8), (1, 16, 64), (3, 5, 15), (8, 4, 1)],
)
def test_the_smallest_pools_start(
    successor_model_path: Path, num_kv_blocks: int, block_size: int, max_model_len: int
) -> None:
    built = _build(
        successor_model_path,
        num_kv_blocks=num_kv_blocks,
        block_size=block_size,
        max_model_len=max_model_len,
    )
    room = built.info.limits.max_total_tokens - 1
    expected = [ord("B") + i for i in range(room)]
    assert (_run(built.core, ord("A"), max_tokens=room) if room else []) == expected


def test_a_length_beyond_the_model_s_is_refused(successor_model_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 8192, the context length of tiny-successor"):
        _build(successor_model_path, max_model_len=8193)


def test_a_pool_beyond_the_memory_is_refused(successor_model_path: Path) -> None:
    with pytest.raises(ConfigError, match="lower num_kv_blocks"):
        _build(successor_model_path, num_kv_blocks=2**40)


UNDER_A_LIMIT = """
import resource, sys
limit = 900_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from chairlift.engine.factory import build_engine_core
from chairlift.engine.options import engine_config
# As many requests as these could fill 2 GB.
options = {"num_threads": 1, "max_num_seqs": 1024, "max_num_batched_tokens": 1024}
print(build_engine_core(engine_config(sys.argv[1], **options)).info.kv_pool_bytes)
"""


def test_under_a_memory_limit_the_default_pool_stays_within_it(random_model_path: Path) -> None:
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(random_model_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(run.stdout) < 900_000_000


def test_the_second_start_takes_packed_weights_from_the_cache(
    successor_model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_CACHE", str(tmp_path))
    monkeypatch.setattr("chairlift.runner.weight_cache.MIN_BYTES", 0)

    def start(**options: Any) -> tuple[str, list[int]]:
        built = _build(successor_model_path, **options)
        if built.saving is not None:
            built.saving.finish()
        return built.info.phases[1][0], _run(built.core, *PROMPT, max_tokens=8)

    first, second = start(), start()
    assert (first[0], second[0]) == ("weights", "cached weights")
    assert first[1] == second[1]
    assert start(dtype="float32")[0] == "weights"
    assert start(weight_cache_bytes=0)[0] == "weights"
    assert start(max_model_len=64)[0] == "cached weights"
    assert len(list((tmp_path / "weights").glob("*.weights"))) == 2


def test_a_second_tier_is_made_and_measured(successor_model_path: Path) -> None:
    limits = _build(successor_model_path, swap_space=1 / 1024, dtype="float32").info.limits
    assert limits.num_swap_blocks == (1 << 20) // (2 * 2 * 2 * 16 * 4 * 16)
    assert 0.0 < limits.swap_block_s < 0.1


def test_a_second_tier_larger_than_memory_is_refused_with_a_way_out(
    successor_model_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"swap_space 1e\+06 GiB does not fit .* set swap_path"):
        _build(successor_model_path, swap_space=1e6)


def test_swapping_without_a_second_tier_is_refused(successor_model_path: Path) -> None:
    with pytest.raises(ConfigError, match="preemption_mode swap needs swap_space above 0"):
        _build(successor_model_path, preemption_mode="swap")


def test_a_folder_for_the_second_tier_that_is_not_there_is_named(
    successor_model_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="absent"):
        _build(successor_model_path, swap_space=1 / 1024, swap_path=str(tmp_path / "absent"))
