"""Memory limits as the kernel shows them, and the KV pool made of what they leave."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from chairlift.config import CacheConfig
from chairlift.errors import ConfigError
from chairlift.runner.memory import (
    KVPoolSize,
    MemorySources,
    kv_pool_size,
    system_memory_sources,
    usable_memory_bytes,
)

GIB = 1 << 30


def _write(root: Path, files: dict[str, str]) -> MemorySources:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemorySources(proc=root / "proc", cgroup=root / "cgroup")


MACHINE_64_GIB = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:  {64 * GIB // 1024} kB\n"}


def test_without_limits_the_machine_s_available_memory_counts(tmp_path: Path) -> None:
    assert usable_memory_bytes(_write(tmp_path, MACHINE_64_GIB)) == 64 * GIB


def test_a_version_2_group_limit_counts_less_what_the_group_uses(tmp_path: Path) -> None:
    sources = _write(
        tmp_path,
        MACHINE_64_GIB
        | {
            "proc/self/cgroup": "0::/app\n",
            "cgroup/app/memory.max": f"{2 * GIB}\n",
            "cgroup/app/memory.current": f"{GIB}\n",
            "cgroup/app/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
        },
    )
    assert usable_memory_bytes(sources) == GIB + GIB // 4


def test_the_limit_of_a_group_further_up_counts_too(tmp_path: Path) -> None:
    sources = _write(
        tmp_path,
        MACHINE_64_GIB
        | {
            "proc/self/cgroup": "0::/pod/app\n",
            "cgroup/pod/app/memory.max": "max\n",
            "cgroup/pod/app/memory.current": "100\n",
            "cgroup/pod/memory.max": f"{3 * GIB}\n",
            "cgroup/pod/memory.current": f"{GIB}\n",
        },
    )
    assert usable_memory_bytes(sources) == 2 * GIB


def test_a_container_that_sees_only_its_own_mount_uses_that_limit(tmp_path: Path) -> None:
    sources = _write(
        tmp_path,
        MACHINE_64_GIB
        | {
            "proc/self/cgroup": "0::/a/path/of/the/host\n",
            "cgroup/memory.max": f"{2 * GIB}\n",
            "cgroup/memory.current": "0\n",
        },
    )
    assert usable_memory_bytes(sources) == 2 * GIB


def test_a_version_1_group_limit_counts(tmp_path: Path) -> None:
    sources = _write(
        tmp_path,
        MACHINE_64_GIB
        | {
            "proc/self/cgroup": "4:cpu,cpuacct:/x\n3:memory:/docker/1\n",
            "cgroup/memory/docker/1/memory.limit_in_bytes": f"{4 * GIB}\n",
            "cgroup/memory/docker/1/memory.usage_in_bytes": f"{GIB}\n",
            "cgroup/memory/docker/1/memory.stat": f"total_inactive_file {GIB}\n",
        },
    )
    assert usable_memory_bytes(sources) == 4 * GIB


def test_a_limit_on_the_address_space_counts(tmp_path: Path) -> None:
    _write(tmp_path, MACHINE_64_GIB | {"proc/self/status": "Name: x\nVmSize:\t 1024 kB\n"})
    sources = MemorySources(tmp_path / "proc", tmp_path / "cgroup", address_space_limit=GIB)
    assert usable_memory_bytes(sources) == GIB - (1 << 20)


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    sources = _write(
        tmp_path,
        MACHINE_64_GIB | {"cgroup/memory.max": "100\n", "cgroup/memory.current": "200\n"},
    )
    assert usable_memory_bytes(sources) == 0


def test_a_system_that_says_nothing_is_told_which_setting_helps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kv_cache_memory_bytes or num_kv_blocks"):
        usable_memory_bytes(_write(tmp_path, {}))


def test_this_machine_s_own_figures_can_be_read() -> None:
    assert usable_memory_bytes(system_memory_sources()) > 0


def _size(cache: CacheConfig, *, usable_bytes: int = GIB, max_model_len: int = 64) -> KVPoolSize:
    return kv_pool_size(
        cache,
        bytes_per_block=1000,
        max_model_len=max_model_len,
        max_num_seqs=4,
        usable_bytes=usable_bytes,
    )


def test_the_pool_takes_its_share_of_the_usable_memory() -> None:
    size = _size(CacheConfig(memory_utilization=0.5), usable_bytes=20_000)
    assert (size.num_blocks, size.size_bytes) == (10, 10_000)


def test_the_pool_is_no_larger_than_full_length_requests_can_fill() -> None:
    size = _size(CacheConfig(block_size=16), max_model_len=65)
    assert size.num_blocks == 4 * 5
    assert "max_num_seqs" in size.reason


def test_a_size_in_bytes_is_rounded_down_to_whole_blocks() -> None:
    assert _size(CacheConfig(kv_cache_memory_bytes=7_999)).num_blocks == 7


def test_a_number_of_blocks_is_taken_as_it_is() -> None:
    assert _size(CacheConfig(num_kv_blocks=3)).num_blocks == 3


def test_a_pool_larger_than_the_memory_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"11000 bytes .* only 10000 more.*lower num_kv_blocks"):
        _size(CacheConfig(num_kv_blocks=11), usable_bytes=10_000)


def test_a_pool_without_a_single_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="no room for a single block"):
        _size(CacheConfig(kv_cache_memory_bytes=999))
    with pytest.raises(ConfigError, match="no room for a single block"):
        _size(CacheConfig(), usable_bytes=1_000)


def test_a_pool_shorter_than_the_context_is_said_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        _size(CacheConfig(num_kv_blocks=3), max_model_len=50)
    assert "holds 48 tokens, less than max_model_len 50" in caplog.text
    caplog.clear()
    _size(CacheConfig(num_kv_blocks=3), max_model_len=49)
    assert caplog.text == ""
