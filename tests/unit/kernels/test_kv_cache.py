"""What the paged cache holds, where, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.kernels.attention_reference import Driver, Setting, make_qkv, split_qkv

from chairlift import _native

ISAS = _native.available_isas()
DTYPES = ["float32", "bfloat16", "int8"]
BLOCK_SIZES = [1, 5, 8, 16, 48]


def make_cache(**changes: Any) -> _native.KvCache:
    arguments = {
        "num_layers": 2,
        "num_kv_heads": 2,
        "head_dim": 16,
        "dtype": "float32",
        "num_blocks": 4,
        "block_size": 16,
    }
    return _native.KvCache(**(arguments | changes))


@pytest.mark.parametrize("head_dim", [6, 64])
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_keys_are_stored_rotated_and_values_as_they_are(
    isa: str, dtype: str, block_size: int, head_dim: int
) -> None:
    setting = Setting(isa, kv_dtype=dtype, block_size=block_size, head_dim=head_dim)
    qkv = make_qkv(setting, 37, seed=0)
    driver = Driver(setting, [qkv])
    driver.step([(0, 36)])
    driver.step([(0, 1)])
    _, k, v = split_qkv(setting, qkv)
    slots = driver.slots(0, np.arange(37))
    np.testing.assert_array_equal(driver.cache.read_keys(1, slots), k.reshape(37, -1))
    np.testing.assert_array_equal(driver.cache.read_values(1, slots), v.reshape(37, -1))


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_slots_of_others_and_other_layers_stay_untouched(
    isa: str, dtype: str, block_size: int
) -> None:
    setting = Setting(isa, kv_dtype=dtype, block_size=block_size)
    driver = Driver(setting, [make_qkv(setting, 37, seed=0)])
    driver.step([(0, 37)])
    all_slots = np.arange(driver.cache.num_blocks * block_size)
    others = np.setdiff1d(all_slots, driver.slots(0, np.arange(37)))
    assert np.isnan(driver.cache.read_keys(1, others)).all()
    assert np.isnan(driver.cache.read_values(1, others)).all()
    assert np.isnan(driver.cache.read_keys(0, all_slots)).all()


def test_a_new_cache_is_zero() -> None:
    assert not make_cache().read_keys(0, np.arange(64)).any()


@pytest.mark.parametrize(
    ("dtype", "block_size", "num_bytes"),
    [
        # 2 layers * (K and V) * 2 heads * 16 dimensions * tokens * bytes
        ("float32", 16, 2 * 2 * 2 * 16 * 16 * 4),
        ("bfloat16", 16, 2 * 2 * 2 * 16 * 16 * 2),
        ("bfloat16", 32, 2 * 2 * 2 * 16 * 32 * 2),
        ("bfloat16", 5, 2 * 2 * 2 * 16 * 6 * 2),  # odd tails are stored in pairs
        # and 64 bytes of scales per head and 16 tokens
        ("int8", 16, 2 * 2 * (2 * 16 * 16 + 64)),
        ("int8", 32, 2 * 2 * (2 * 16 * 32 + 2 * 64)),
        ("int8", 5, 2 * 2 * (2 * 16 * 8 + 64)),  # tails are stored in fours
    ],
)
def test_a_block_takes_what_its_tokens_take(dtype: str, block_size: int, num_bytes: int) -> None:
    assert make_cache(dtype=dtype, block_size=block_size).bytes_per_block == num_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 15}, "head_dim must be even, got 15"),
        ({"head_dim": 258}, "head_dim must be between 2 and 256, got 258"),
        ({"block_size": 0}, "block_size must be between 1 and 1048576, got 0"),
        ({"num_blocks": 0}, "num_blocks must be between 1 and"),
        ({"num_kv_heads": 0}, "num_kv_heads must be between 1 and"),
        ({"num_layers": -1}, "num_layers must be between 1 and"),
        ({"dtype": "float16"}, "must be auto, float32, bfloat16 or int8, got float16"),
    ],
)
def test_shapes_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_cache(**changes)


def test_slots_outside_of_the_cache_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="slot is outside of the cache: 64"):
        make_cache().read_keys(0, np.array([64]))


def good_step() -> dict[str, Any]:
    """Two sequences: the first has 2 new tokens of 2, the second 1 of 17."""
    return {
        "layer": 0,
        "qkv": np.zeros((3, 8 * 16), np.float32),
        "positions": np.array([0, 1, 16], np.int32),
        "query_start_loc": np.array([0, 2, 3], np.int32),
        "seq_lens": np.array([2, 17], np.int32),
        "block_tables": np.array([[2, -1], [0, 3]], np.int32),
        "slot_mapping": np.array([32, 33, 48], np.int64),
    }


def make_layer() -> _native.AttentionLayer:
    setting = Setting(ISAS[0])
    return Driver(setting, [make_qkv(setting, 20, 0), make_qkv(setting, 20, 1)]).layer


def test_the_step_that_the_refused_ones_differ_from_is_accepted() -> None:
    assert make_layer().run(**good_step()).shape == (3, 64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": 2}, "layer is outside of the cache"),
        ({"qkv": np.zeros((3, 100), np.float32)}, "qkv has the wrong width"),
        ({"positions": np.array([0, 1], np.int32)}, "one element per row of qkv"),
        ({"positions": np.array([0, 1, 15], np.int32)}, r"positions\[2\] must be 16"),
        ({"query_start_loc": np.array([0, 3], np.int32)}, "disagree on the number of sequences"),
        ({"query_start_loc": np.array([1, 2, 3], np.int32)}, r"query_start_loc\[0\] must be 0"),
        ({"query_start_loc": np.array([0, 2, 2], np.int32)}, r"query_start_loc\[2\] must be above"),
        ({"query_start_loc": np.array([0, 2, 4], np.int32)}, r"query_start_loc\[2\] must be above"),
        ({"seq_lens": np.array([1, 17], np.int32)}, r"seq_lens\[0\] must be between its new"),
        ({"seq_lens": np.array([2, 33], np.int32)}, r"seq_lens\[1\] .* can hold, 32, got 33"),
        (
            {"block_tables": np.array([[2, -1], [0, 99]], np.int32)},
            r"block_tables\[1\]\[1\] must be between 0 and \d+, got 99",
        ),
        (
            {"block_tables": np.array([[2, -1], [-1, 3]], np.int32)},
            r"block_tables\[1\]\[0\] must be between 0 and \d+, got -1",
        ),
        ({"slot_mapping": np.array([32, 33, 49], np.int64)}, r"slot_mapping\[2\] must be 48"),
    ],
)
def test_inconsistent_batches_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_layer().run(**(good_step() | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads must be a multiple of num_kv_heads"),
        ({"inv_freq": np.ones(7)}, "inv_freq must have head_dim / 2 elements"),
        ({"sliding_window": -1}, "sliding_window must be at least 0"),
        ({"q_norm": np.ones(8, np.float32)}, "q_norm and k_norm must have head_dim elements"),
        ({"isa": "mmx"}, "mmx"),
    ],
)
def test_layers_that_do_not_fit_their_cache_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    arguments = {
        "isa": ISAS[0],
        "dtype": "float32",
        "team": _native.ThreadTeam(1),
        "cache": make_cache(),
        "num_heads": 4,
        "inv_freq": np.ones(8),
        "scale": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        _native.AttentionLayer(**(arguments | changes))


@pytest.mark.parametrize("block", [-1, 4])
def test_only_blocks_of_the_cache_can_be_filled(block: int) -> None:
    with pytest.raises(ValueError, match=f"block must be between 0 and 3, got {block}"):
        make_cache().fill_block(block, 0)
