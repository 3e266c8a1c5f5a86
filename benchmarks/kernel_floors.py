"""What kernels take at least on a machine: memory to read, or operations to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chairlift.kernels.file_formats import BITS_PER_WEIGHT
from chairlift.model_spec import ModelSpec, TensorType
from kernel_setups import Case, Setup

WEIGHT_BYTES: Mapping[str, float] = {
    "float32": 4,
    "bfloat16": 2,
    "int8": 1,
    "Q4_1": BITS_PER_WEIGHT[TensorType.Q4_1] / 8,
    "Q8_0": BITS_PER_WEIGHT[TensorType.Q8_0] / 8,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the arithmetic and the memory of a machine do at most.

    Attributes:
        read_gb_per_s: Bytes that all threads read from memory.
        peak_gops: Operations of products (a multiply and an add are two), by what is multiplied:
            ``float32``, ``bfloat16`` or ``int8``.
    """

    read_gb_per_s: float
    peak_gops: Mapping[str, float]

    def floor(self, num_bytes: float, operations: float, arithmetic: str) -> Floor:
        """The longer of reading so many bytes and doing so many operations."""
        read_ms = num_bytes / self.read_gb_per_s / 1e6
        compute_ms = operations / self.peak_gops[arithmetic] / 1e6
        bound = "memory" if read_ms > compute_ms else "arithmetic"
        return Floor(round(max(read_ms, compute_ms), 4), bound)


@dataclass(frozen=True, slots=True)
class Floor:
    """What something takes at least, in milliseconds, and what keeps it from less."""

    ms: float
    bound: str


def arithmetic_of(weights: str) -> str:
    """What products with such weights multiply: those kept as in a file become bfloat16."""
    return weights if weights in ("float32", "int8") else "bfloat16"


def linear_parameters(spec: ModelSpec) -> dict[str, int]:
    """Weights that each phase reads in a step, in all layers."""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layers, hidden, ffn = spec.num_layers, spec.hidden_size, spec.intermediate_size
    return {
        "qkv": layers * hidden * (q + 2 * kv),
        "o": layers * hidden * q,
        "gate_up": layers * hidden * 2 * ffn,
        "down": layers * hidden * ffn,
        "head": spec.vocab_size * hidden,
    }


def step_floors(
    spec: ModelSpec, setup: Setup, case: Case, kv_token_bytes: float, machine: Machine
) -> dict[str, Floor]:
    """What each phase of a step with a floor takes at least, by phase.

    Args:
        kv_token_bytes: Of a token's keys and values in all layers.
    """
    result = {}
    for phase, count in linear_parameters(spec).items():
        in_file = "Q8_0" if phase == "head" else "Q4_1"
        num_bytes = count * WEIGHT_BYTES[in_file if setup.weights == "gguf" else setup.weights]
        rows = case.num_seqs if phase == "head" else case.num_tokens
        result[phase] = machine.floor(num_bytes, 2 * count * rows, arithmetic_of(setup.weights))
    result["attention"] = _attention_floor(spec, setup, case, kv_token_bytes, machine)
    return result


def _attention_floor(
    spec: ModelSpec, setup: Setup, case: Case, kv_token_bytes: float, machine: Machine
) -> Floor:
    """Each sequence's keys and values read once; each query times those up to its own."""
    pairs = case.num_seqs * sum(range(case.seq_len - case.new + 1, case.seq_len + 1))
    kept = setup.kv_cache_dtype
    if kept == "auto":
        kept = "float32" if setup.weights == "float32" else "bfloat16"
    return machine.floor(
        case.num_seqs * case.seq_len * kv_token_bytes,
        spec.num_layers * pairs * 4 * spec.num_heads * spec.head_dim,
        kept,
    )


def describe(ms: float, floor: dict[str, Any]) -> str:
    """A time beside its floor and the floor's share of it."""
    return f"{ms:8.3f} ms  floor {floor['ms']:8.3f}  {floor['ms'] / ms:4.0%} {floor['bound']}"
