"""Which weights of a GGUF file can be used as they are, without a second, larger copy.

A kept matrix has the file's own size in memory, and a kernel expands it to bfloat16 as it goes: the
results are those of bfloat16 weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from chairlift.model_spec import TensorType, WeightTensor

BITS_PER_WEIGHT = {
    TensorType.Q4_0: 4.5,
    TensorType.Q4_1: 5.0,
    TensorType.Q8_0: 8.5,
    TensorType.Q4_K: 4.625,
    TensorType.Q6_K: 6.5625,
}
"""Storage formats that can be kept, and what a weight takes in memory, scales included.

It is what the weight takes in the file, but that Q4_K's scales have 6 bits there and 8 here.
"""

_BFLOAT16_BITS = 16.0

# Tensors that the kernels multiply as one matrix, which has one format.
_JOINED = {
    "q_proj": "qkv",
    "k_proj": "qkv",
    "v_proj": "qkv",
    "gate_proj": "gate_up",
    "up_proj": "gate_up",
}


def types_to_keep(weights: Iterable[WeightTensor]) -> dict[str, TensorType]:
    """Choose the tensors to keep as they are stored, by name.

    A matrix is kept when all its tensors have one type, and that is in ``BITS_PER_WEIGHT``: q, k
    and v projections are one matrix, gate and up projections another.
    """
    matrices: dict[str, list[WeightTensor]] = {}
    for tensor in weights:
        if len(tensor.shape) == 2:
            matrices.setdefault(_matrix_name(tensor.name), []).append(tensor)
    kept: dict[str, TensorType] = {}
    for tensors in matrices.values():
        tensor_type = tensors[0].tensor_type
        if tensor_type in BITS_PER_WEIGHT and all(t.tensor_type is tensor_type for t in tensors):
            kept |= {tensor.name: tensor_type for tensor in tensors}
    return kept


def kept_weight_bytes(weights: Iterable[WeightTensor]) -> int:
    """Memory of the matrices of a model, those that cannot be kept in bfloat16."""
    weights = list(weights)
    kept = types_to_keep(weights)
    bits = 0.0
    for tensor in weights:
        if len(tensor.shape) == 2:
            tensor_type = kept.get(tensor.name)
            per_weight = BITS_PER_WEIGHT[tensor_type] if tensor_type else _BFLOAT16_BITS
            bits += tensor.shape[0] * tensor.shape[1] * per_weight
    return int(bits) // 8


def _matrix_name(tensor_name: str) -> str:
    layer, _, part = tensor_name.rpartition(".")
    return f"{layer}.{_JOINED.get(part, part)}"
