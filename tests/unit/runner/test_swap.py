"""The second tier: its size, its place, its speed, and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from chairlift.config import CacheConfig
from chairlift.core.scheduler_output import BlockCopy, SchedulerOutput
from chairlift.errors import ConfigError
from chairlift.runner.swap import (
    SwapModel,
    SwapSpace,
    copy_blocks,
    open_swap_space,
    swap_memory_bytes,
)

MIB_IN_GIB = 1 / 1024


class NotingModel:
    """Notes what it is told; fails to allocate if told so."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.allocated: list[tuple[int, str]] = []
        self.copies: list[tuple[str, list[int], list[int]]] = []
        self._failure = failure

    def allocate_swap(self, num_blocks: int, path: str = "") -> None:
        if self._failure is not None:
            raise self._failure
        self.allocated.append((num_blocks, path))

    def swap_out(self, blocks: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
        self.copies.append(("out", blocks.tolist(), slots.tolist()))

    def swap_in(self, slots: npt.NDArray[np.int32], blocks: npt.NDArray[np.int32]) -> None:
        self.copies.append(("in", slots.tolist(), blocks.tolist()))


def opened(model: SwapModel, cache: CacheConfig, num_kv_blocks: int = 100) -> SwapSpace:
    return open_swap_space(model, cache, bytes_per_block=1 << 19, num_kv_blocks=num_kv_blocks)


def test_it_holds_as_many_blocks_as_its_size_allows() -> None:
    model = NotingModel()
    swap = opened(model, CacheConfig(swap_space=3.9 * MIB_IN_GIB))
    assert swap.num_blocks == 7
    assert model.allocated == [(7, "")]
    assert swap.block_s > 0.0


def test_none_is_made_by_default() -> None:
    model = NotingModel()
    assert opened(model, CacheConfig()) == SwapSpace(0, 0.0)
    assert (model.allocated, model.copies) == ([], [])


def test_its_speed_is_measured_in_blocks_that_both_tiers_have() -> None:
    model = NotingModel()
    opened(model, CacheConfig(swap_space=8 * MIB_IN_GIB), num_kv_blocks=3)
    assert {tuple(copy[1]) for copy in model.copies} == {(0, 1, 2)}


def test_as_a_file_it_has_a_name_of_its_own_in_the_folder_and_takes_no_memory(
    tmp_path: Path,
) -> None:
    model = NotingModel()
    cache = CacheConfig(swap_space=MIB_IN_GIB, swap_path=str(tmp_path))
    opened(model, cache)
    opened(model, cache)
    paths = [Path(path) for _, path in model.allocated]
    assert paths[0] != paths[1]
    assert {path.parent for path in paths} == {tmp_path}
    assert swap_memory_bytes(cache) == 0
    assert swap_memory_bytes(CacheConfig(swap_space=MIB_IN_GIB)) == 1 << 20


def test_a_size_below_one_block_is_refused_with_the_least_that_would_do() -> None:
    with pytest.raises(ConfigError, match=r"no room for a single KV block .* raise it to 0\.00049"):
        opened(NotingModel(), CacheConfig(swap_space=0.0001))


def test_a_file_that_cannot_be_made_is_named() -> None:
    failure = OSError(28, "No space left on device")
    with pytest.raises(ConfigError, match=r"swap_space 2 GiB cannot be had in /full: .*No space"):
        opened(NotingModel(failure), CacheConfig(swap_space=2, swap_path="/full"))


def test_copies_go_out_before_others_come_in() -> None:
    model = NotingModel()
    plan = SchedulerOutput(0, [], swap_out=[BlockCopy(5, 0), BlockCopy(6, 2)])
    plan.swap_in.append(BlockCopy(5, 1))
    copy_blocks(model, plan)
    assert model.copies == [("out", [5, 6], [0, 2]), ("in", [1], [5])]


def test_a_step_without_copies_asks_the_model_for_none() -> None:
    model = NotingModel()
    copy_blocks(model, SchedulerOutput(0, []))
    assert model.copies == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"swap_space": -1.0}, "swap_space must be between 0 and 1000000 GiB, got -1.0"),
        ({"swap_path": "/tmp"}, "swap_path /tmp is of no use without swap_space"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    options: dict[str, float | str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CacheConfig(**options)  # type: ignore[arg-type]
