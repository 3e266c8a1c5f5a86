"""A row of attention has the same bits however it comes to be computed (promise 1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.kernels.attention_reference import Driver, Floats, Setting, make_qkv, run_in_chunks

from chairlift import _native

LENGTH = 530  # more than one chunk of the online softmax, and no multiple of anything


@pytest.fixture(
    params=[("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "int8")],
    ids=["float32", "bfloat16", "int8 cache"],
)
def dtypes(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Arithmetic, and what the cache holds."""
    dtype, kv_dtype = request.param
    return dtype, kv_dtype


@pytest.fixture(params=[0, 37], ids=["all", "window 37"])
def window(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=_native.available_isas())
def setting(request: pytest.FixtureRequest, dtypes: tuple[str, str], window: int) -> Setting:
    return Setting(request.param, *dtypes, num_heads=6, num_kv_heads=2, head_dim=48, window=window)


@pytest.fixture
def qkv(setting: Setting) -> Floats:
    return make_qkv(setting, LENGTH, seed=7)


@pytest.fixture
def whole(setting: Setting, qkv: Floats) -> Floats:
    """The sequence alone, in one step, on one thread."""
    return run_in_chunks(replace(setting, num_threads=1), qkv, LENGTH)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_bits_do_not_depend_on_how_the_prompt_is_cut(
    setting: Setting, qkv: Floats, whole: Floats, chunk: int
) -> None:
    np.testing.assert_array_equal(run_in_chunks(setting, qkv, chunk), whole)


@pytest.mark.parametrize("block_size", [1, 5, 8, 24, 32, 128, 1000])
def test_bits_do_not_depend_on_the_block_size(
    setting: Setting, qkv: Floats, whole: Floats, block_size: int
) -> None:
    other = replace(setting, block_size=block_size)
    np.testing.assert_array_equal(run_in_chunks(other, qkv, 101), whole)


def test_bits_do_not_depend_on_the_neighbours(setting: Setting, qkv: Floats, whole: Floats) -> None:
    neighbours = [make_qkv(setting, n, seed=n) for n in (1, 33, 400)]
    driver = Driver(setting, [*neighbours, qkv], seed=3)
    parts = [
        *driver.step([(1, 20), (3, 100), (2, 300)]),
        *driver.step([(3, 420), (1, 12), (0, 1), (2, 99)]),
    ]
    alone = [driver.step([(2, 1), (3, 1), (1, 1)])[1]]
    alone += [driver.step([(3, 1)])[0] for _ in range(9)]
    out = np.concatenate([parts[1], parts[3], *alone])
    np.testing.assert_array_equal(out, whole)


def test_bits_do_not_depend_on_the_number_of_threads(
    setting: Setting, qkv: Floats, whole: Floats
) -> None:
    np.testing.assert_array_equal(
        run_in_chunks(replace(setting, num_threads=2), qkv, LENGTH), whole
    )
