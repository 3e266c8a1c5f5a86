"""Weights kept as in a GGUF file: the bits of the bfloat16 matrix, on every instruction set."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tests.unit.kernels.test_dequant import random_blocks, reference
from tests.unit.kernels.test_linear import numbers, round_bf16

from chairlift import _native
from chairlift.kernels.file_formats import BITS_PER_WEIGHT, kept_weight_bytes, types_to_keep
from chairlift.model_spec import TensorType, WeightTensor

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

KEPT = list(BITS_PER_WEIGHT)
ISAS = _native.available_isas()

# (rows, in_features, out_features): around tiles, passes over a panel, and blocks of rows.
SHAPES = [
    (1, 32, 80),
    (2, 576, 64),
    (3, 96, 97),
    (16, 64, 33),
    (17, 160, 1),
    (33, 32, 32),
    (65, 96, 48),
    (130, 64, 70),
    (300, 64, 65),
    (100, 4096, 33),
]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set level in turn, forced."""
    monkeypatch.setenv("CHAIRLIFT_ISA", request.param)
    return str(request.param)


def stored_rows(tensor_type: TensorType, out_features: int, in_features: int) -> Bytes:
    """Random blocks, some of whose scales are zero, tiny or negative."""
    data = random_blocks(tensor_type, out_features * in_features, seed=in_features)
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor_type]]
    blocks = data.reshape(-1, block_bytes)
    at = 208 if tensor_type is TensorType.Q6_K else 0
    for index, scale in enumerate((0.0, -0.0, 6e-8, -6e-8, 3e-5, 64.0)):
        blocks[index::61, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    return data.reshape(out_features, -1)


def in_whole_blocks(tensor_type: TensorType, size: int) -> int:
    """The size rounded up to what a row of this type can have."""
    length, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor_type]]
    return -(-size // length) * length


def as_bfloat16(tensor_type: TensorType, rows: Bytes) -> Floats:
    """What the gguf package makes of the rows, rounded. [out, in]."""
    values = reference(tensor_type, rows.reshape(-1)).reshape(len(rows), -1)
    return round_bf16(values)


def same_bits(found: Floats, expected: Floats) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("tensor_type", KEPT)
def test_a_row_comes_back_as_the_gguf_package_reads_it(tensor_type: TensorType) -> None:
    in_features = in_whole_blocks(tensor_type, 300)
    rows = stored_rows(tensor_type, 70, in_features)
    linear = _native.Linear(rows, tensor_type, in_features, False, 2)
    expected = as_bfloat16(tensor_type, rows)
    for feature in range(70):
        found = np.empty(in_features, np.float32)
        linear.unpack(feature, found)
        same_bits(found, expected[feature])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("tensor_type", KEPT)
@pytest.mark.parametrize(("rows", "in_features", "out_features"), SHAPES)
def test_products_have_the_bits_of_the_bfloat16_matrix(
    tensor_type: TensorType, rows: int, in_features: int, out_features: int
) -> None:
    in_features = in_whole_blocks(tensor_type, in_features)
    stored = stored_rows(tensor_type, out_features, in_features)
    kept = _native.Linear(stored, tensor_type, in_features, False, 2)
    plain = _native.Linear(as_bfloat16(tensor_type, stored), "bfloat16", False, 2)
    x, bias = numbers(1, rows, in_features), numbers(2, out_features)
    found = np.full((rows, out_features), np.nan, np.float32)
    expected = found.copy()
    kept.apply(x, "store", bias, found)
    plain.apply(x, "store", bias, expected)
    assert np.isfinite(expected).all()
    same_bits(found, expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("tensor_type", KEPT)
@pytest.mark.parametrize("epilogue", ["add", "silu_mul"])
@pytest.mark.parametrize("rows", [1, 20, 40, 100])
def test_what_follows_a_product_has_the_bits_of_the_bfloat16_matrix(
    tensor_type: TensorType, epilogue: str, rows: int
) -> None:
    gate_up = epilogue == "silu_mul"
    in_features = in_whole_blocks(tensor_type, 96)
    stored = stored_rows(tensor_type, 2 * 41, in_features)
    kept = _native.Linear(stored, tensor_type, in_features, gate_up, 2)
    plain = _native.Linear(as_bfloat16(tensor_type, stored), "bfloat16", gate_up, 2)
    x = numbers(1, rows, in_features)
    found = numbers(3, rows, 41 if gate_up else 82)
    expected = found.copy()
    kept.apply(x, epilogue, None, found)
    plain.apply(x, epilogue, None, expected)
    same_bits(found, expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("tensor_type", KEPT)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_row_has_the_same_bits_in_every_batch(tensor_type: TensorType, num_threads: int) -> None:
    in_features = in_whole_blocks(tensor_type, 64)
    stored = stored_rows(tensor_type, 97, in_features)
    x = numbers(1, 70, in_features)

    def apply(rows: Floats) -> Floats:
        out = np.empty((len(rows), 97), np.float32)
        linear = _native.Linear(stored, tensor_type, in_features, False, num_threads)
        linear.apply(np.ascontiguousarray(rows), "store", None, out)
        return out

    alone = np.concatenate([apply(row[None]) for row in x])
    for rows in (2, 15, 33, 70):
        same_bits(apply(x[:rows]), alone[:rows])


def test_rows_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor_type must be Q4_0, Q4_1, Q8_0, Q4_K or Q6_K"):
        _native.Linear(np.zeros((4, 176), np.uint8), "Q5_K", 256, False, 1)
    with pytest.raises(ValueError, match="whole blocks"):
        _native.Linear(np.zeros((4, 18), np.uint8), "Q4_0", 33, False, 1)
    linear = _native.Linear(np.zeros((4, 18), np.uint8), "Q4_0", 32, False, 1)
    with pytest.raises(ValueError, match="feature must be"):
        linear.unpack(4, np.empty(32, np.float32))
    with pytest.raises(ValueError, match="in_features elements"):
        linear.unpack(0, np.empty(31, np.float32))


def tensor(name: str, tensor_type: TensorType, *shape: int) -> WeightTensor:
    return WeightTensor(name, tensor_type, shape, np.empty(0, np.uint8))


def test_a_matrix_is_kept_when_all_its_parts_have_one_type() -> None:
    q4, q8, q5, f32 = TensorType.Q4_0, TensorType.Q8_0, TensorType.Q5_K, TensorType.F32
    weights = [
        tensor("embed_tokens", q5, 256, 256),
        tensor("layers.0.q_proj", q4, 256, 256),
        tensor("layers.0.k_proj", q4, 64, 256),
        tensor("layers.0.v_proj", q8, 64, 256),
        tensor("layers.0.o_proj", q8, 256, 256),
        tensor("layers.0.gate_proj", q4, 512, 256),
        tensor("layers.0.up_proj", q4, 512, 256),
        tensor("layers.1.gate_proj", q4, 512, 256),
        tensor("layers.1.up_proj", q8, 512, 256),
        tensor("norm", f32, 256),
    ]
    kept = types_to_keep(weights)
    assert kept == {
        "layers.0.o_proj": q8,
        "layers.0.gate_proj": q4,
        "layers.0.up_proj": q4,
    }
    in_bfloat16 = (256 + 256 + 64 + 64 + 512 + 512) * 256 * 2
    assert kept_weight_bytes(weights) == in_bfloat16 + 256 * 8 * 34 + 1024 * 8 * 18
