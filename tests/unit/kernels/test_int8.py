"""int8 rows and products against numpy, bit for bit on every instruction set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from chairlift import _native

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]

# (rows, in_features, out_features): around the widths of tiles, panels, blocks and quads.
SHAPES = [
    (1, 64, 32),
    (2, 576, 64),
    (3, 1, 97),
    (15, 63, 33),
    (17, 65, 1),
    (33, 130, 40),
    (70, 200, 48),
    (300, 66, 65),
]


@pytest.fixture(params=_native.available_isas(), autouse=True)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set level in turn, forced."""
    monkeypatch.setenv("CHAIRLIFT_ISA", request.param)
    return str(request.param)


def whole_numbers(seed: int, *shape: int) -> Floats:
    """Values whose rotation is exact in float32, with an outlier here and there."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-60, 61, shape) * np.where(rng.random(shape) < 0.01, 100, 1)
    return values.astype(np.float32)


def hadamard(size: int) -> Floats:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def rotated(x: Floats) -> Floats:
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 64)))
    blocks = padded.reshape(len(x), -1, 64)
    return (blocks @ hadamard(64)).reshape(padded.shape)


def quantised(x: Floats) -> tuple[Bytes, Floats]:
    """What quantise_rows has to give: [rows, padded] int8 and a scale per row."""
    y = rotated(x)
    most = np.abs(y).max(axis=1)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    q = np.rint(y * inverse[:, None]).astype(np.int8)
    return q, most / np.float32(127)


def native_quantised(x: Floats) -> tuple[Bytes, Floats]:
    out = np.zeros((len(x), x.shape[1] + -x.shape[1] % 64), np.int8)
    scales = np.zeros(len(x), np.float32)
    _native.quantise_rows(x, out, scales)
    return out, scales


def product(x: Floats, w: Floats) -> Floats:
    (q_x, scale_x), (q_w, scale_w) = quantised(x), quantised(w)
    sums = q_x.astype(np.int32) @ q_w.astype(np.int32).T
    scale = (scale_w / np.float32(64))[None, :] * scale_x[:, None]
    return sums.astype(np.float32) * scale


def apply(
    x: Floats, w: Floats, epilogue: str = "store", bias: Floats | None = None, threads: int = 2
) -> Floats:
    columns = len(w) // 2 if epilogue == "silu_mul" else len(w)
    out = np.ones((len(x), columns), np.float32)
    _native.Linear(w, "int8", epilogue == "silu_mul", threads).apply(x, epilogue, bias, out)
    return out


@pytest.mark.parametrize("size", [1, 16, 63, 64, 65, 576, 1000])
def test_a_row_is_rotated_and_rounded_as_numpy_does_it(size: int) -> None:
    x = whole_numbers(1, 9, size)
    x[3] = 0
    bytes_, scales = native_quantised(x)
    expected_bytes, expected_scales = quantised(x)
    np.testing.assert_array_equal(bytes_, expected_bytes)
    np.testing.assert_array_equal(scales, expected_scales)


def test_a_quantised_row_is_within_half_a_step_of_the_row() -> None:
    x = np.random.default_rng(2).standard_normal((5, 192)).astype(np.float32)
    bytes_, scales = native_quantised(x)
    back = rotated(bytes_.astype(np.float32) * scales[:, None]) / 64
    # The mean of 64 roundings, each with either sign.
    np.testing.assert_allclose(back, x, rtol=0, atol=0.501 * float(scales.max()))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_has_a_scale_that_says_so(value: float) -> None:
    x = whole_numbers(1, 3, 100)
    x[1, 77] = value
    _, scales = native_quantised(x)
    assert np.isnan(scales).tolist() == [False, True, False]


def test_rows_too_small_to_divide_by_become_zero() -> None:
    bytes_, scales = native_quantised(np.full((1, 64), 1e-38, np.float32))
    assert not bytes_.any()
    assert scales[0] == 0


@pytest.mark.parametrize(("rows", "in_features", "out_features"), SHAPES)
def test_products_are_exact_sums_of_int8_times_the_scales(
    rows: int, in_features: int, out_features: int
) -> None:
    x, w = whole_numbers(1, rows, in_features), whole_numbers(2, out_features, in_features)
    bias = whole_numbers(3, out_features)
    np.testing.assert_array_equal(apply(x, w, bias=bias), product(x, w) + bias)
    np.testing.assert_array_equal(apply(x, w, "add"), product(x, w) + np.float32(1))


def test_the_largest_sums_do_not_saturate() -> None:
    # Rotated, a lone value is the same everywhere: all int8 are 127 or -127.
    x, w = np.zeros((2, 2, 4096), np.float32)
    x[:, ::64], w[:, ::64] = [[3], [-3]], [[5], [-5]]
    expected = np.array([[15, -15], [-15, 15]], np.float32) * 64
    np.testing.assert_allclose(apply(x, w), expected, rtol=1e-6)


@pytest.mark.parametrize("intermediate", [16, 41])
def test_gate_and_up_give_silu_of_one_times_the_other(intermediate: int) -> None:
    x = whole_numbers(1, 21, 70) / np.float32(1024)
    w = whole_numbers(2, 2 * intermediate, 70) / np.float32(256)
    gate, up = np.split(product(x, w).astype(np.float64), 2, axis=1)
    found = apply(x, w, "silu_mul")
    np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * up, rtol=2.0**-8, atol=1e-20)


@pytest.mark.parametrize("epilogue", ["store", "silu_mul"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_in_every_batch(epilogue: str, threads: int) -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 100), (96, 100)))
    alone = np.concatenate([apply(row[None], w, epilogue, threads=1) for row in x])
    for rows in (1, 2, 5, 14, 15, 16, 17, 32, 33, 64, 65, 70):
        np.testing.assert_array_equal(apply(x[:rows], w, epilogue, threads=threads), alone[:rows])
    order = rng.permutation(len(x))
    np.testing.assert_array_equal(apply(x[order], w, epilogue, threads=threads), alone[order])


def test_a_row_of_nan_stays_alone() -> None:
    x, w = whole_numbers(1, 20, 64), whole_numbers(2, 40, 64)
    clean = apply(x, w)
    x[7, 3] = np.nan
    found = apply(x, w)
    assert np.isnan(found[7]).all()
    others = np.arange(20) != 7
    np.testing.assert_array_equal(found[others], clean[others])


def test_wrong_shapes_are_refused() -> None:
    x = whole_numbers(1, 2, 65)
    with pytest.raises(ValueError, match="columns rounded up to 64"):
        _native.quantise_rows(x, np.zeros((2, 65), np.int8), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="as many elements as x has rows"):
        _native.quantise_rows(x, np.zeros((2, 128), np.int8), np.zeros(3, np.float32))
