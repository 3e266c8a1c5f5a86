"""The native dequantisation against the gguf package's own, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from chairlift import _native
from chairlift.model_spec import TensorType

SUPER_BLOCK = 256


def random_blocks(tensor_type: TensorType, n: int, seed: int = 0) -> np.ndarray:
    """Random bytes for n weights, in which every scale is a finite number."""
    rng = np.random.default_rng(seed)
    block_length, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor_type]]
    blocks = rng.integers(0, 256, (n // block_length, block_bytes), dtype=np.uint8)
    if tensor_type in (TensorType.F32, TensorType.F16, TensorType.BF16):
        return blocks.reshape(-1)
    scale_columns = {TensorType.Q6_K: (208,)}.get(tensor_type, (0, 2))
    with_minimum = ("Q4_1", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
    for column in scale_columns if tensor_type in with_minimum else scale_columns[:1]:
        scales = rng.normal(scale=0.02, size=len(blocks)).astype(np.float16)
        blocks[:, column : column + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def reference(tensor_type: TensorType, data: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaNs among random halves
        return gguf.dequantize(data, gguf.GGMLQuantizationType[tensor_type]).astype(np.float32)


@pytest.mark.parametrize("tensor_type", TensorType)
@pytest.mark.parametrize("num_blocks", [1, 3, 64])
def test_weights_have_the_bits_of_the_reference(tensor_type: TensorType, num_blocks: int) -> None:
    n = num_blocks * SUPER_BLOCK
    data = random_blocks(tensor_type, n, seed=num_blocks)
    if tensor_type is TensorType.F32:
        expected = data.view(np.float32)
    elif tensor_type is TensorType.F16:
        expected = data.view(np.float16).astype(np.float32)
    else:
        expected = reference(tensor_type, data)
    values = _native.dequantize(tensor_type, data, n)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(values), np.isnan(expected))
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(values[finite].view(np.uint32), expected[finite].view(np.uint32))


def test_every_half_precision_number_is_exact() -> None:
    data = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        expected = data.view(np.float16).astype(np.float32)
    values = _native.dequantize("F16", data.view(np.uint8), data.size)
    np.testing.assert_array_equal(values, expected)  # NaNs count as equal
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


def test_bytes_need_no_alignment() -> None:
    data = random_blocks(TensorType.Q4_K, SUPER_BLOCK)
    shifted = np.concatenate([np.zeros(1, np.uint8), data])[1:]
    np.testing.assert_array_equal(
        _native.dequantize("Q4_K", shifted, SUPER_BLOCK),
        _native.dequantize("Q4_K", data, SUPER_BLOCK),
    )


def test_no_weights_give_no_weights() -> None:
    assert _native.dequantize("Q8_0", np.empty(0, np.uint8), 0).shape == (0,)


@pytest.mark.parametrize(
    ("tensor_type", "size", "n", "message"),
    [
        ("Q2_K", 84, 256, "tensor_type must be one of"),
        ("Q4_0", 18, 31, "n must be a multiple of 32"),
        ("Q4_0", 17, 32, "data must hold 18 bytes, got 17"),
        ("Q6_K", 211, 256, "data must hold 210 bytes, got 211"),
        ("F32", 0, -1, "got -1"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tensor_type: str, size: int, n: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _native.dequantize(tensor_type, np.zeros(size, np.uint8), n)
