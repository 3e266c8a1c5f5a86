"""The second tier of the KV cache: how large it is, where it lies, how fast it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from chairlift.config import CacheConfig
from chairlift.core.scheduler_output import BlockCopy, SchedulerOutput
from chairlift.errors import ConfigError

_BYTES_PER_GIB = 1 << 30
_MEASURED_BLOCKS = 8
_ROUNDS = 3

_Ids = npt.NDArray[np.int32]


class SwapModel(Protocol):
    """What copying needs of a model; :class:`~chairlift.kernels.cpu_model.CpuModel` is one."""

    def allocate_swap(self, num_blocks: int, path: str = "") -> None:
        """Make the second tier, as a file if a path is given."""
        ...

    def swap_out(self, blocks: _Ids, slots: _Ids) -> None:
        """Copy blocks of the pool to slots of the second tier."""
        ...

    def swap_in(self, slots: _Ids, blocks: _Ids) -> None:
        """Copy slots of the second tier to blocks of the pool."""
        ...


@dataclass(frozen=True, slots=True)
class SwapSpace:
    """The second tier of an engine.

    Attributes:
        num_blocks: KV blocks that it holds; 0: there is none.
        block_s: Seconds to copy one there or back; 0.0 without a tier.
    """

    num_blocks: int = 0
    block_s: float = 0.0


def swap_memory_bytes(cache: CacheConfig) -> int:
    """Memory that the second tier takes once all of it has been used; none if it is a file."""
    return 0 if cache.swap_path else int(cache.swap_space * _BYTES_PER_GIB)


def open_swap_space(
    model: SwapModel, cache: CacheConfig, *, bytes_per_block: int, num_kv_blocks: int
) -> SwapSpace:
    """Make the second tier as configured, and measure how fast it is.

    Args:
        model: Has its KV cache, whose blocks nobody uses yet: measuring writes over some.
        bytes_per_block: K and V of a block in all layers.

    Raises:
        ConfigError: Not even one block fits, or the file cannot be made.
    """
    if not cache.swap_space:
        return SwapSpace()
    num_blocks = int(cache.swap_space * _BYTES_PER_GIB) // bytes_per_block
    if num_blocks < 1:
        raise ConfigError(
            f"swap_space {cache.swap_space:g} GiB has no room for a single KV block of "
            f"{bytes_per_block} bytes; raise it to {bytes_per_block / _BYTES_PER_GIB:.2g} or more"
        )
    name = f"chairlift-swap-{os.getpid()}-{uuid4().hex[:8]}"
    path = str(Path(cache.swap_path) / name) if cache.swap_path else ""
    try:
        model.allocate_swap(num_blocks, path)
    except (OSError, MemoryError) as error:
        raise ConfigError(
            f"swap_space {cache.swap_space:g} GiB cannot be had in "
            f"{cache.swap_path or 'memory'}: {error}; lower it or choose another swap_path"
        ) from None
    return SwapSpace(num_blocks, _block_seconds(model, min(num_blocks, num_kv_blocks)))


def _block_seconds(model: SwapModel, num_usable: int) -> float:
    """The least mean time of a copy over some rounds there and back."""
    num_blocks = min(_MEASURED_BLOCKS, num_usable)
    ids = np.arange(num_blocks, dtype=np.int32)
    rounds_s = []
    for _ in range(_ROUNDS):
        started_s = perf_counter()
        model.swap_in(ids, ids)  # first, so that the pool's memory has been touched
        model.swap_out(ids, ids)
        rounds_s.append(perf_counter() - started_s)
    return min(rounds_s) / (2 * num_blocks)


def copy_blocks(model: SwapModel, plan: SchedulerOutput) -> None:
    """Make the copies of a step: out first, then in.

    Raises:
        KernelInputError: A block or slot does not exist.
    """
    if plan.swap_out:
        model.swap_out(*_ids(plan.swap_out))
    if plan.swap_in:
        blocks, slots = _ids(plan.swap_in)
        model.swap_in(slots, blocks)


def _ids(copies: list[BlockCopy]) -> tuple[_Ids, _Ids]:
    """Blocks and slots, each [num_copies] int32."""
    block_ids, slots = zip(*copies, strict=True)
    return np.array(block_ids, np.int32), np.array(slots, np.int32)
