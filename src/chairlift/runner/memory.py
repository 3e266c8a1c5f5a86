"""How much memory this process may still use, and how many KV blocks that makes.

In a container the host's free memory is not the process's: the control group's limit counts, and
so does a limit on the address space. The smallest of them rules.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chairlift.config import CacheConfig
from chairlift.errors import ConfigError

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemorySources:
    """Where the figures are read; other places in tests.

    Attributes:
        proc: The proc file system.
        cgroup: Where control groups are mounted: version 2 here, version 1 in ``memory`` below.
        address_space_limit: ``RLIMIT_AS`` in bytes; ``None`` for no limit.
    """

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    address_space_limit: int | None = None


def system_memory_sources() -> MemorySources:
    """The sources of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return MemorySources(
        address_space_limit=None if limit == resource.RLIM_INFINITY else limit,
    )


def usable_memory_bytes(sources: MemorySources | None = None) -> int:
    """Bytes this process may still allocate: the least of what each limit leaves, at least 0.

    Counted are the machine's ``MemAvailable``, the memory limit of the process's control group and
    of every group above it (versions 1 and 2) less what the group uses, and the limit on the
    process's address space less its size. Pages that only cache files do not count as used.

    Raises:
        ConfigError: No source says anything, so that the size must be set by hand.
    """
    sources = sources or system_memory_sources()
    figures = [
        *_machine_available(sources),
        *_cgroup_v2_available(sources),
        *_cgroup_v1_available(sources),
        *_address_space_available(sources),
    ]
    if not figures:
        raise ConfigError(
            "cannot find out how much memory is available on this system; "
            "set kv_cache_memory_bytes or num_kv_blocks"
        )
    return max(0, min(figures))


@dataclass(frozen=True, slots=True)
class KVPoolSize:
    """How large the KV pool is and why.

    Attributes:
        reason: Which setting or limit decided, for the report at start.
    """

    num_blocks: int
    bytes_per_block: int
    reason: str

    @property
    def size_bytes(self) -> int:
        """Memory of the pool once all of it has been used."""
        return self.num_blocks * self.bytes_per_block


def kv_pool_size(
    cache: CacheConfig,
    *,
    bytes_per_block: int,
    max_model_len: int,
    max_num_seqs: int,
    usable_bytes: int,
) -> KVPoolSize:
    """Decide how many blocks the KV pool has.

    A number set in ``cache`` is taken as it is, as long as the memory is there. Otherwise the pool
    gets its share of ``usable_bytes``, but no more than ``max_num_seqs`` requests of the greatest
    length can fill.

    Args:
        bytes_per_block: K and V of ``block_size`` tokens in all layers.
        usable_bytes: What :func:`usable_memory_bytes` says once the weights are in memory.

    Raises:
        ConfigError: Not even one block fits, or a size was set for which there is no memory.
    """
    if cache.num_kv_blocks:
        size = KVPoolSize(cache.num_kv_blocks, bytes_per_block, "num_kv_blocks")
        _check_memory(size, usable_bytes)
    elif cache.kv_cache_memory_bytes:
        num_blocks = cache.kv_cache_memory_bytes // bytes_per_block
        size = KVPoolSize(num_blocks, bytes_per_block, "kv_cache_memory_bytes")
        _check_memory(size, usable_bytes)
    else:
        size = _automatic_size(cache, bytes_per_block, max_model_len, max_num_seqs, usable_bytes)
    if size.num_blocks < 1:
        raise ConfigError(
            f"the KV pool has no room for a single block: {size.reason} allows "
            f"{size.num_blocks} blocks of {bytes_per_block} bytes ({cache.block_size} tokens), "
            f"with {usable_bytes} bytes of memory usable; raise kv_cache_memory_bytes or "
            "memory_utilization, or lower block_size"
        )
    _warn_if_short(size, cache.block_size, max_model_len)
    return size


def _automatic_size(
    cache: CacheConfig,
    bytes_per_block: int,
    max_model_len: int,
    max_num_seqs: int,
    usable_bytes: int,
) -> KVPoolSize:
    affordable = int(usable_bytes * cache.memory_utilization) // bytes_per_block
    useful = max_num_seqs * -(-max_model_len // cache.block_size)
    if affordable < useful:
        reason = f"memory_utilization {cache.memory_utilization:g} of {usable_bytes} bytes"
        return KVPoolSize(affordable, bytes_per_block, reason)
    return KVPoolSize(useful, bytes_per_block, "max_num_seqs requests of max_model_len tokens")


def _check_memory(size: KVPoolSize, usable_bytes: int) -> None:
    if size.size_bytes > usable_bytes:
        raise ConfigError(
            f"{size.reason} asks for a KV pool of {size.size_bytes} bytes "
            f"({size.num_blocks} blocks of {size.bytes_per_block}), but this process may use only "
            f"{usable_bytes} more bytes of memory; lower {size.reason}"
        )


def _warn_if_short(size: KVPoolSize, block_size: int, max_model_len: int) -> None:
    if size.num_blocks * block_size + 1 < max_model_len:
        _LOGGER.warning(
            "the KV pool holds %d tokens, less than max_model_len %d: longer requests are refused",
            size.num_blocks * block_size,
            max_model_len,
        )


def _machine_available(sources: MemorySources) -> Iterator[int]:
    for line in _read_lines(sources.proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            yield int(value.split()[0]) * 1024


def _cgroup_v2_available(sources: MemorySources) -> Iterator[int]:
    for group in _groups(sources, controller="", mount=sources.cgroup):
        limit = _read_number(group / "memory.max")
        used = _read_number(group / "memory.current")
        if limit is not None and used is not None:
            yield limit - used + _file_cache_bytes(group, "inactive_file")


def _cgroup_v1_available(sources: MemorySources) -> Iterator[int]:
    for group in _groups(sources, controller="memory", mount=sources.cgroup / "memory"):
        limit = _read_number(group / "memory.limit_in_bytes")
        used = _read_number(group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            yield limit - used + _file_cache_bytes(group, "total_inactive_file")


def _address_space_available(sources: MemorySources) -> Iterator[int]:
    if sources.address_space_limit is None:
        return
    for line in _read_lines(sources.proc / "self" / "status"):
        name, _, value = line.partition(":")
        if name == "VmSize":
            yield sources.address_space_limit - int(value.split()[0]) * 1024


def _groups(sources: MemorySources, *, controller: str, mount: Path) -> Iterator[Path]:
    """The process's control group and all above it, as folders below ``mount``.

    Inside a container the path in ``/proc/self/cgroup`` may be that of the host, of which only the
    mount itself can be seen: folders that do not exist are left out.
    """
    relative = Path()
    for line in _read_lines(sources.proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            relative = Path(path.strip().lstrip("/"))
    for folder in (relative, *relative.parents):
        if (mount / folder).is_dir():
            yield mount / folder


def _file_cache_bytes(group: Path, field: str) -> int:
    for line in _read_lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == field:
            return int(value)
    return 0


def _read_number(path: Path) -> int | None:
    """The number in a file; ``None`` if there is no such file, or no limit ("max") in it."""
    text = "".join(_read_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
