"""Attention over the paged cache against a float64 reference, on every instruction set here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.kernels.attention_reference import (
    Driver,
    Setting,
    make_qkv,
    reference,
    run_in_chunks,
    tolerance,
)

from chairlift import _native

ISAS = _native.available_isas()
# Arithmetic, and what the cache holds.
DTYPES = [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "int8")]
MIXED_DTYPES = [("float32", "bfloat16"), ("bfloat16", "float32"), ("float32", "int8")]
# Tokens already in the cache, then new ones: decodes and prefill chunks in one batch.
MIXED = [(0, 1), (16, 1), (13, 5), (334, 129), (447, 1)]
LONG = [(1327, 1), (1024, 40)]

SHAPES = {
    "4 heads of 16, MHA": Setting("", num_heads=4, num_kv_heads=4, head_dim=16),
    "8/2 heads of 64": Setting("", num_heads=8, num_kv_heads=2, head_dim=64),
    "9/3 heads of 64, blocks of 32": Setting(
        "", num_heads=9, num_kv_heads=3, head_dim=64, block_size=32
    ),
    "5/1 heads of 80, blocks of 48": Setting(
        "", num_heads=5, num_kv_heads=1, head_dim=80, block_size=48
    ),
    "8/2 heads of 128, blocks of 128": Setting("", num_heads=8, head_dim=128, block_size=128),
    "1 head of 256": Setting("", num_heads=1, num_kv_heads=1, head_dim=256),
    "20/1 heads of 32: more than a tile": Setting("", num_heads=20, num_kv_heads=1, head_dim=32),
    "dimension 6, blocks of 5": Setting("", head_dim=6, block_size=5),
    "dimension 50, blocks of 8": Setting("", head_dim=50, block_size=8),
    "blocks of 1": Setting("", block_size=1),
}


def check_against_reference(setting: Setting, parts: list[tuple[int, int]]) -> None:
    sequences = [make_qkv(setting, old + new, seed) for seed, (old, new) in enumerate(parts)]
    driver = Driver(setting, sequences)
    before = [(i, old) for i, (old, _) in enumerate(parts) if old]
    driver.step(before)
    outputs = driver.step([(i, new) for i, (_, new) in enumerate(parts)])
    for (old, _), qkv, out in zip(parts, sequences, outputs, strict=True):
        limit = tolerance(setting, qkv)
        np.testing.assert_allclose(out, reference(setting, qkv, old), rtol=0, atol=limit)


@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_decodes_and_chunks_in_one_batch_equal_the_reference(
    shape: Setting, isa: str, dtype: str, kv_dtype: str
) -> None:
    check_against_reference(replace(shape, isa=isa, dtype=dtype, kv_dtype=kv_dtype), MIXED)


@pytest.mark.parametrize(("dtype", "kv_dtype"), MIXED_DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_the_cache_may_be_wider_or_narrower_than_the_arithmetic(
    isa: str, dtype: str, kv_dtype: str
) -> None:
    check_against_reference(Setting(isa, dtype, kv_dtype, head_dim=64), MIXED)


@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_contexts_of_many_chunks_equal_the_reference(isa: str, dtype: str, kv_dtype: str) -> None:
    check_against_reference(
        Setting(isa, dtype, kv_dtype, num_heads=3, num_kv_heads=1, head_dim=32), LONG
    )


@pytest.mark.parametrize("window", [1, 7, 100])
@pytest.mark.parametrize("block_size", [5, 16])
@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_a_token_sees_no_further_back_than_its_window(
    isa: str, dtype: str, kv_dtype: str, block_size: int, window: int
) -> None:
    setting = Setting(isa, dtype, kv_dtype, block_size=block_size, window=window)
    check_against_reference(setting, MIXED)


@pytest.mark.parametrize("block_size", [5, 16, 32])
@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_blocks_that_lie_before_the_window_are_not_read(
    isa: str, dtype: str, kv_dtype: str, block_size: int
) -> None:
    setting = Setting(isa, dtype, kv_dtype, block_size=block_size, window=20)
    qkv = make_qkv(setting, 300, seed=0)
    driver = Driver(setting, [qkv])
    driver.step([(0, 290)])
    for block in driver.tables[0][: (291 - 20) // block_size]:
        driver.cache.fill_block(int(block), 0xFF)
    (out,) = driver.step([(0, 10)])
    limit = tolerance(setting, qkv)
    np.testing.assert_allclose(out, reference(setting, qkv, 290), rtol=0, atol=limit)


@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_heads_are_normalised_before_the_rotation(isa: str, dtype: str, kv_dtype: str) -> None:
    check_against_reference(Setting(isa, dtype, kv_dtype, head_dim=48, norms=True), MIXED)


@pytest.mark.parametrize("isa", ISAS)
def test_the_attention_factor_scales_the_rotation(isa: str) -> None:
    check_against_reference(Setting(isa, attention_factor=1.25), MIXED)


@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_large_scores_neither_overflow_nor_lose_the_maximum(
    isa: str, dtype: str, kv_dtype: str
) -> None:
    setting = Setting(isa, dtype, kv_dtype)
    qkv = make_qkv(setting, 40, seed=0) * np.float32(60)
    out = run_in_chunks(setting, qkv, 40)
    limit = tolerance(setting, qkv)
    np.testing.assert_allclose(out, reference(setting, qkv, 0), rtol=0, atol=limit)


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES)
@pytest.mark.parametrize("isa", ISAS)
def test_heads_of_zeros_are_like_any_other(isa: str, dtype: str, kv_dtype: str, part: str) -> None:
    setting = Setting(isa, dtype, kv_dtype, num_heads=4, num_kv_heads=2, head_dim=16)
    qkv = make_qkv(setting, 40, seed=0)
    first, last = {"q": (0, 4), "k": (4, 6), "v": (6, 8)}[part]
    qkv[10:, first * 16 : last * 16] = 0
    out = run_in_chunks(setting, qkv, 7)
    limit = tolerance(setting, qkv)
    np.testing.assert_allclose(out, reference(setting, qkv, 0), rtol=0, atol=limit)


@pytest.mark.parametrize("block_size", [5, 16])
@pytest.mark.parametrize("isa", ISAS)
def test_blocks_beyond_four_gibibytes_are_found(isa: str, block_size: int) -> None:
    setting = Setting(isa, block_size=block_size)
    bytes_per_token = 2 * setting.num_kv_heads * setting.head_dim * 4
    first_block = 2**32 // (bytes_per_token * block_size)  # the memory before stays unused
    qkv = make_qkv(setting, 50, seed=0)
    driver = Driver(setting, [qkv], first_block=first_block)
    (out,) = driver.step([(0, 50)])
    limit = tolerance(setting, qkv)
    np.testing.assert_allclose(out, reference(setting, qkv, 0), rtol=0, atol=limit)
