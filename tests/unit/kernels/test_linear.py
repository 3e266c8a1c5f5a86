"""Linear layers with their epilogues, and RMSNorm, against float64 on every instruction set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from chairlift import _native

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

ISAS = _native.available_isas()
DTYPES = ["float32", "bfloat16"]
F32_ROUNDING = 2.0**-24
BF16_ROUNDING = 2.0**-8

# (rows, in_features, out_features): around the widths of tiles, panels and register blocks.
SHAPES = [
    (1, 48, 80),
    (2, 576, 64),
    (3, 31, 97),
    (15, 64, 33),
    (17, 97, 1),
    (33, 40, 32),
    (70, 160, 48),
    (300, 33, 65),
]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set level in turn, forced."""
    monkeypatch.setenv("CHAIRLIFT_ISA", request.param)
    return str(request.param)


def round_bf16(x: Floats) -> Floats:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def numbers(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_read(x: Floats, dtype: str) -> Doubles:
    """The values a kernel multiplies: exact products of these are what it sums up."""
    return (x if dtype == "float32" else round_bf16(x)).astype(np.float64)


def products(x: Floats, w: Floats, dtype: str) -> tuple[Doubles, Doubles]:
    """x w^T, and the bound of its error when summed up in float32 in any order."""
    x64, w64 = as_read(x, dtype), as_read(w, dtype)
    bound = (x.shape[1] + 2) * F32_ROUNDING * (np.abs(x64) @ np.abs(w64).T)
    return x64 @ w64.T, bound


def apply(
    x: Floats,
    w: Floats,
    dtype: str,
    epilogue: str = "store",
    bias: Floats | None = None,
    out: Floats | None = None,
    num_threads: int = 2,
) -> Floats:
    columns = len(w) // 2 if epilogue == "silu_mul" else len(w)
    result = np.full((len(x), columns), np.nan, np.float32) if out is None else out.copy()
    linear = _native.Linear(w, dtype, epilogue == "silu_mul", num_threads)
    linear.apply(x, epilogue, bias, result)
    return result


def assert_within(found: Floats, expected: Doubles, bound: Doubles) -> None:
    error = np.abs(found - expected)
    assert np.all(error <= bound), f"{(error / bound).max():.3g} times the bound"


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "in_features", "out_features"), SHAPES)
def test_a_linear_layer_with_bias_equals_the_reference(
    dtype: str, rows: int, in_features: int, out_features: int
) -> None:
    x, w = numbers(1, rows, in_features), numbers(2, out_features, in_features)
    bias = numbers(3, out_features)
    expected, bound = products(x, w, dtype)
    expected = expected + bias
    assert_within(apply(x, w, dtype, bias=bias), expected, bound + F32_ROUNDING * abs(expected))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
def test_adding_to_the_residual_stream_keeps_what_was_there(dtype: str) -> None:
    x, w, before = numbers(1, 37, 80), numbers(2, 48, 80), numbers(3, 37, 48)
    expected, bound = products(x, w, dtype)
    expected = expected + before
    found = apply(x, w, dtype, "add", out=before)
    assert_within(found, expected, bound + 2 * F32_ROUNDING * abs(expected))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("intermediate", [16, 80, 41])
def test_gate_and_up_give_silu_of_one_times_the_other(dtype: str, intermediate: int) -> None:
    x, w = numbers(1, 21, 48), numbers(2, 2 * intermediate, 48)
    both, bound = products(x, w, dtype)
    gate, up = np.split(both, 2, axis=1)
    gate_bound, up_bound = np.split(bound, 2, axis=1)
    silu = gate / (1 + np.exp(-gate))
    # Where the result is a bfloat16, silu itself is precise to 1.4e-4.
    rounding = 8 * F32_ROUNDING if dtype == "float32" else BF16_ROUNDING + 1.4e-4
    # The slope of silu is at most 1.1.
    propagated = 1.1 * gate_bound * (abs(up) + up_bound) + abs(silu) * up_bound
    found = apply(x, w, dtype, "silu_mul")
    assert_within(found, silu * up, propagated + rounding * abs(silu * up) + 1e-30)


@pytest.mark.usefixtures("isa")
def test_silu_of_a_bfloat16_product_is_as_precise_as_bfloat16_for_every_gate() -> None:
    gates = np.concatenate([np.linspace(-60, 60, 961), [-1e4, -88, 88, 1e4]])
    x = (gates.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)[:, None]
    w = np.array([[1.0], [1.0]], np.float32)
    gate = x.astype(np.float64)
    # up is the gate again.
    expected = gate * gate / (1 + np.exp(np.minimum(-gate, 700)))
    found = apply(x, w, "bfloat16", "silu_mul")
    np.testing.assert_allclose(found, expected, rtol=BF16_ROUNDING + 1.4e-4, atol=1e-27)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("gate", [-1e4, -200.0, -90.0, 90.0, 200.0, 1e4])
def test_gates_far_from_zero_neither_overflow_nor_lose_precision(gate: float) -> None:
    x = np.array([[gate]], np.float32)
    w = np.array([[1.0], [0.0]], np.float32)
    w[1] = 2.0 / gate  # up = 2
    expected = gate / (1 + np.exp(-np.float64(gate))) * 2 if gate > 0 else 0.0
    np.testing.assert_allclose(
        apply(x, w, "float32", "silu_mul"), [[expected]], rtol=1e-6, atol=1e-30
    )


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", ["store", "silu_mul"])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_row_has_the_same_bits_in_every_batch(
    dtype: str, epilogue: str, num_threads: int
) -> None:
    x, w = numbers(1, 70, 100), numbers(2, 96, 100)
    alone = np.concatenate([apply(row[None], w, dtype, epilogue, num_threads=1) for row in x])
    for rows in (1, 2, 3, 5, 14, 15, 16, 17, 31, 32, 33, 48, 64, 65, 70):
        together = apply(x[:rows], w, dtype, epilogue, num_threads=num_threads)
        np.testing.assert_array_equal(together, alone[:rows])
    order = np.random.default_rng(4).permutation(len(x))
    shuffled = apply(x[order], w, dtype, epilogue, num_threads=num_threads)
    np.testing.assert_array_equal(shuffled, alone[order])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_nan_stays_alone(dtype: str) -> None:
    x, w = numbers(1, 20, 64), numbers(2, 40, 64)
    clean = apply(x, w, dtype)
    poisoned = x.copy()
    poisoned[7] = np.nan
    found = apply(poisoned, w, dtype)
    assert np.isnan(found[7]).all()
    others = np.arange(20) != 7
    np.testing.assert_array_equal(found[others], clean[others])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [16, 31, 48, 576])
def test_rms_norm_equals_the_reference(dtype: str, size: int) -> None:
    x, weight = numbers(1, 5, size) * 3, numbers(2, size)
    out = np.empty_like(x)
    _native.rms_norm(x, weight, 1e-5, dtype, out)
    x64 = x.astype(np.float64)
    expected = x64 / np.sqrt((x64**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    # The sum of squares has positive terms only: size / 2 roundings halve under the root.
    rounding = (size / 4 + 6) * F32_ROUNDING + (BF16_ROUNDING if dtype == "bfloat16" else 0)
    np.testing.assert_allclose(out, expected, rtol=rounding, atol=0)


def test_wrong_shapes_and_names_are_refused() -> None:
    linear = _native.Linear(numbers(1, 8, 16), "float32", False, 1)
    out = np.empty((2, 8), np.float32)
    with pytest.raises(ValueError, match="as many columns"):
        linear.apply(numbers(2, 2, 15), "store", None, out)
    with pytest.raises(ValueError, match="as many rows"):
        linear.apply(numbers(2, 3, 16), "store", None, out)
    with pytest.raises(ValueError, match="epilogue must be"):
        linear.apply(numbers(2, 2, 16), "relu", None, out)
    with pytest.raises(ValueError, match="dtype must be float32 or bfloat16"):
        _native.Linear(numbers(1, 8, 16), "float16", False, 1)
