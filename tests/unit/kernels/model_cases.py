"""Small random models of odd shapes, and batches for them, to check the forward step with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from chairlift.kernels.cpu_model import (
    CpuDtype,
    CpuModel,
    CpuQuantization,
    FlatBatch,
    KvCacheDtype,
)
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor, expected_weights

Floats = npt.NDArray[np.float32]


def make_spec(
    *,
    hidden_size: int = 48,
    intermediate_size: int = 80,
    vocab_size: int = 97,
    num_heads: int = 5,
    num_kv_heads: int = 1,
    head_dim: int = 16,
    num_layers: int = 2,
) -> ModelSpec:
    """A plain Llama of these sizes."""
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        max_position_embeddings=2048,
        rope_inv_freq=tuple(1e4 ** (-2 * i / head_dim) for i in range(head_dim // 2)),
        sliding_windows=(0,) * num_layers,
    )


SPECS = {
    "odd sizes": make_spec(),
    "head_dim 32, tied": replace(
        make_spec(hidden_size=96, num_heads=4, num_kv_heads=2, head_dim=32, vocab_size=130),
        tie_word_embeddings=True,
    ),
    "head_dim 64, all biases": replace(
        make_spec(num_heads=3, num_kv_heads=3, head_dim=64, intermediate_size=41),
        attention_bias=True,
        attention_output_bias=True,
    ),
    "head_dim 80, windows": replace(
        make_spec(num_heads=2, num_kv_heads=1, head_dim=80), sliding_windows=(7, 0)
    ),
    "head_dim 128, norms of q and k": replace(
        make_spec(num_heads=2, num_kv_heads=2, head_dim=128, hidden_size=33),
        qk_norm=True,
        rope_attention_factor=1.25,
    ),
}


def round_bf16(x: Floats) -> Floats:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def make_weights(spec: ModelSpec, seed: int = 0) -> list[WeightTensor]:
    """Random weights that bfloat16 holds exactly, scaled so that activations stay near 1."""
    rng = np.random.default_rng(seed)
    tensors = []
    for name, shape in expected_weights(spec):
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 2 and name != "embed_tokens":
            values *= np.float32(shape[1] ** -0.5)
        elif "norm" in name:
            values = np.float32(1) + np.float32(0.2) * values
        values = round_bf16(values)
        tensors.append(WeightTensor(name, TensorType.F32, shape, values.reshape(-1).view(np.uint8)))
    return tensors


def make_model(
    spec: ModelSpec,
    dtype: CpuDtype,
    *,
    quantization: CpuQuantization = "none",
    kv_cache_dtype: KvCacheDtype = "auto",
    num_threads: int = 2,
    max_num_batched_tokens: int = 256,
    block_size: int = 16,
    num_blocks: int = 64,
) -> CpuModel:
    """A loaded model with a KV cache."""
    model = CpuModel(
        spec,
        dtype=dtype,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=num_threads,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    for tensor in make_weights(spec):
        model.set_weight(tensor)
    model.finish_loading()
    model.allocate_kv(num_blocks, block_size)
    return model


@dataclass(frozen=True)
class Chunk:
    """Tokens [first, last) of a sequence that has this many blocks from this one on."""

    tokens: Sequence[int]
    first: int
    last: int
    blocks: Sequence[int]


def make_batch(chunks: Sequence[Chunk], block_size: int = 16) -> FlatBatch:
    """The flat batch of these chunks."""
    positions = [np.arange(c.first, c.last) for c in chunks]
    tables = np.full((len(chunks), max(len(c.blocks) for c in chunks)), -1, np.int32)
    for row, chunk in enumerate(chunks):
        tables[row, : len(chunk.blocks)] = chunk.blocks
    slots = [
        tables[row, p // block_size].astype(np.int64) * block_size + p % block_size
        for row, p in enumerate(positions)
    ]
    token_ids = [np.asarray(c.tokens[c.first : c.last]) for c in chunks]
    return FlatBatch(
        token_ids=np.concatenate(token_ids).astype(np.int32),
        positions=np.concatenate(positions).astype(np.int32),
        query_start_loc=np.cumsum([0, *(len(p) for p in positions)]).astype(np.int32),
        seq_lens=np.array([c.last for c in chunks], np.int32),
        block_tables=tables,
        slot_mapping=np.concatenate(slots),
    )


def all_logits(model: CpuModel, batch: FlatBatch, vocab_size: int) -> Floats:
    """Logits of every token of a batch. [num_tokens, vocab_size]."""
    model.forward(batch)
    rows = np.arange(len(batch.token_ids), dtype=np.int32)
    out = np.full((len(rows), vocab_size), np.nan, np.float32)
    model.compute_logits(rows, out)
    return out
