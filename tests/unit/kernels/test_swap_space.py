"""Blocks of the KV cache that go to a second tier and come back: the same bits, or a refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.unit.kernels.model_cases import Chunk, all_logits, make_batch, make_model, make_spec

from chairlift.errors import KernelInputError
from chairlift.kernels.cpu_model import CpuModel

SPEC = make_spec()
TOKENS = [int(t) for t in np.random.default_rng(7).integers(0, 97, 40)]


def ids(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


def next_logits(model: CpuModel, blocks: list[int]) -> npt.NDArray[np.float32]:
    """Logits after the last token of TOKENS, the 39 before it being in these blocks."""
    return all_logits(model, make_batch([Chunk(TOKENS, 39, 40, blocks)]), SPEC.vocab_size)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("in_file", [False, True])
def test_a_sequence_goes_on_in_other_blocks_with_the_same_bits(
    tmp_path: Path, num_threads: int, in_file: bool
) -> None:
    model = make_model(SPEC, "bfloat16", num_threads=num_threads)
    model.allocate_swap(5, str(tmp_path / "swap") if in_file else "")
    model.forward(make_batch([Chunk(TOKENS, 0, 39, [9, 3, 4])]))
    expected = next_logits(model, [9, 3, 4])
    model.forward(make_batch([Chunk(TOKENS, 0, 39, [9, 3, 4])]))
    model.swap_out(ids(9, 3, 4), ids(4, 0, 1))
    model.forward(make_batch([Chunk(TOKENS[::-1], 0, 40, [9, 3, 4])]))  # somebody else's now
    assert (next_logits(model, [9, 3, 4]) != expected).any()
    model.swap_in(ids(4, 0, 1), ids(7, 9, 1))
    assert (next_logits(model, [7, 9, 1]) == expected).all()


def test_slots_keep_what_they_hold_until_they_are_overwritten() -> None:
    model = make_model(SPEC, "float32")
    model.allocate_swap(3)
    model.forward(make_batch([Chunk(TOKENS, 0, 39, [0, 1, 2])]))
    expected = next_logits(model, [0, 1, 2])
    model.swap_out(ids(0, 1), ids(2, 1))
    for blocks in ([5, 6], [8, 7]):
        model.swap_in(ids(2, 1), ids(*blocks))
        assert (next_logits(model, [*blocks, 2]) == expected).all()


def test_the_file_has_no_name_once_it_is_in_use(tmp_path: Path) -> None:
    make_model(SPEC, "float32").allocate_swap(3, str(tmp_path / "swap"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="mine"):
        make_model(SPEC, "float32").allocate_swap(3, str(path))
    assert path.read_text() == "precious"


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        make_model(SPEC, "float32").allocate_swap(3, str(tmp_path / "absent" / "swap"))


def test_a_file_without_space_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="swap"):
        make_model(SPEC, "float32").allocate_swap(1 << 30, str(tmp_path / "swap"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("blocks", "slots", "message"),
    [
        (ids(0, 64), ids(0, 1), r"blocks\[1\] must be between 0 and 63, got 64"),
        (ids(-1, 0), ids(0, 1), r"blocks\[0\] must be between 0 and 63, got -1"),
        (ids(0, 1), ids(3, 0), r"slots\[0\] must be between 0 and 2, got 3"),
        (ids(0, 1), ids(0, -1), r"slots\[1\] must be between 0 and 2, got -1"),
        (ids(0, 1), ids(0), "blocks and slots must have the same number of elements, got 2 and 1"),
        (np.array([0.0]), ids(0), "wrong type"),
    ],
)
def test_ids_that_do_not_fit_are_refused_both_ways(
    blocks: npt.NDArray[np.int32], slots: npt.NDArray[np.int32], message: str
) -> None:
    model = make_model(SPEC, "float32")
    model.allocate_swap(3)
    with pytest.raises(KernelInputError, match=message):
        model.swap_out(blocks, slots)
    with pytest.raises(KernelInputError, match=message):
        model.swap_in(slots, blocks)


def test_two_sources_cannot_have_one_destination() -> None:
    model = make_model(SPEC, "float32")
    model.allocate_swap(3)
    with pytest.raises(KernelInputError, match="slots must be distinct, got 2 twice"):
        model.swap_out(ids(0, 1), ids(2, 2))
    with pytest.raises(KernelInputError, match="blocks must be distinct, got 5 twice"):
        model.swap_in(ids(0, 1), ids(5, 5))


def test_nothing_is_swapped_without_a_swap_space_of_this_cache() -> None:
    model = make_model(SPEC, "float32")
    with pytest.raises(KernelInputError, match="call allocate_swap first"):
        model.swap_out(ids(0), ids(0))
    model.allocate_swap(3)
    model.allocate_kv(64, 16)
    with pytest.raises(KernelInputError, match="call allocate_swap first"):
        model.swap_in(ids(0), ids(0))


def test_a_swap_space_needs_a_cache_and_a_number_of_slots() -> None:
    model = CpuModel(SPEC, dtype="float32", num_threads=1, max_num_batched_tokens=1)
    with pytest.raises(KernelInputError, match="call allocate_kv before allocate_swap"):
        model.allocate_swap(1)
    model.allocate_kv(1, 16)
    with pytest.raises(KernelInputError, match="must be between 1 and 1073741824, got 0"):
        model.allocate_swap(0)
