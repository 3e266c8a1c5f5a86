"""Models of SmolLM2-135M's shapes with random weights, and steps for them to compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from chairlift.kernels.cpu_model import CpuModel, FlatBatch, KvCacheDtype
from chairlift.kernels.file_formats import types_to_keep
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor, expected_weights

BLOCK_SIZE = 32
Weights = Literal["float32", "bfloat16", "int8", "gguf"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a model keeps its weights and its keys and values as.

    Attributes:
        weights: ``gguf``: as in a file of Q4_1 with a head of Q8_0, as SmolLM2's is.
        kv_cache_dtype: ``"auto"``: what is computed in.
        all_steps: Whether whole steps are measured, or attention alone.
    """

    weights: Weights
    kv_cache_dtype: KvCacheDtype = "auto"
    all_steps: bool = True


SETUPS = {
    "bfloat16": Setup("bfloat16"),
    "int8": Setup("int8"),
    "gguf": Setup("gguf"),
    "int8-kv": Setup("bfloat16", "int8", all_steps=False),
    "float32-kv": Setup("bfloat16", "float32", all_steps=False),
    "float32": Setup("float32"),
}
DEFAULT_SETUPS = ("bfloat16", "int8", "gguf", "int8-kv", "float32-kv")


@dataclass(frozen=True, slots=True)
class Case:
    """One step: so many sequences, each with so many tokens in all, the last ``new`` computed."""

    name: str
    num_seqs: int
    seq_len: int
    new: int

    @property
    def num_tokens(self) -> int:
        return self.num_seqs * self.new


ATTENTION_CASES = (
    Case("decode 64 x 128", 64, 128, 1),
    Case("decode 32 x 1024", 32, 1024, 1),
    Case("prefill 1 x 512", 1, 512, 512),
)
CASES = (
    *(Case(f"decode {n} x 128", n, 128, 1) for n in (1, 8, 32)),
    *ATTENTION_CASES,
    Case("decode 128 x 128", 128, 128, 1),
    Case("prefill 8 x 64", 8, 64, 64),
)


def smollm2_spec(num_layers: int) -> ModelSpec:
    """Shapes of SmolLM2-135M, which has 30 layers."""
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=num_layers,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        rope_inv_freq=tuple(1e5 ** (-2 * i / 64) for i in range(32)),
        sliding_windows=(0,) * num_layers,
        tie_word_embeddings=True,
    )


def make_model(spec: ModelSpec, setup: Setup, num_threads: int) -> CpuModel:
    """The model with random weights and room for every case."""
    in_file = setup.weights == "gguf"
    model = CpuModel(
        spec,
        dtype="float32" if setup.weights == "float32" else "bfloat16",
        quantization="int8" if setup.weights == "int8" else "none",
        kv_cache_dtype=setup.kv_cache_dtype,
        num_threads=num_threads,
        max_num_batched_tokens=max(case.num_tokens for case in CASES),
        kept_types=types_to_keep(_weights(spec, in_file=True)) if in_file else None,
    )
    for tensor in _weights(spec, in_file=in_file):
        model.set_weight(tensor)
    model.finish_loading()
    model.allocate_kv(max(c.num_seqs * -(-c.seq_len // BLOCK_SIZE) for c in CASES), BLOCK_SIZE)
    return model


def make_batch(case: Case, vocab_size: int) -> FlatBatch:
    """Every sequence has blocks of its own."""
    num_blocks = -(-case.seq_len // BLOCK_SIZE)
    tables = np.arange(case.num_seqs * num_blocks, dtype=np.int32).reshape(case.num_seqs, -1)
    positions = np.arange(case.seq_len - case.new, case.seq_len)
    slots = tables[:, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE
    return FlatBatch(
        token_ids=np.random.default_rng(1)
        .integers(0, vocab_size, case.num_tokens)
        .astype(np.int32),
        positions=np.tile(positions, case.num_seqs).astype(np.int32),
        query_start_loc=np.arange(case.num_seqs + 1, dtype=np.int32) * np.int32(case.new),
        seq_lens=np.full(case.num_seqs, case.seq_len, np.int32),
        block_tables=tables,
        slot_mapping=(slots + positions % BLOCK_SIZE).reshape(-1),
    )


def _weights(spec: ModelSpec, *, in_file: bool) -> Iterator[WeightTensor]:
    rng = np.random.default_rng(0)
    for name, shape in expected_weights(spec):
        if in_file and len(shape) == 2:
            kept = TensorType.Q8_0 if shape[0] == spec.vocab_size else TensorType.Q4_1
            yield WeightTensor(name, kept, shape, _file_blocks(rng, kept, shape))
            continue
        values = rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        yield WeightTensor(name, TensorType.F32, shape, values.reshape(-1).view(np.uint8))


def _file_blocks(
    rng: np.random.Generator, kept: TensorType, shape: tuple[int, ...]
) -> npt.NDArray[np.uint8]:
    """Random weights in [-1, 1] / sqrt(inputs), as a file has them."""
    block_bytes = {TensorType.Q4_1: 20, TensorType.Q8_0: 34}[kept]
    largest = shape[-1] ** -0.5
    blocks = rng.integers(0, 256, (shape[0] * shape[1] // 32, block_bytes), np.uint8)
    scales = [largest / 7.5, -largest] if kept is TensorType.Q4_1 else [largest / 127]
    blocks[:, : 2 * len(scales)] = np.array(scales, np.float16).view(np.uint8)
    return blocks.reshape(-1)
