"""A tiny Llama with random weights as a GGUF file, in the formats that can be kept and others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.unit.models.gguf_builder import tiny_metadata, write_gguf

VOCAB, HIDDEN, FFN, LAYERS = 300, 64, 160, 2
KV = HIDDEN // 2

# Per layer: all of qkv in one format; gate_up in one in the first layer and in two in the second,
# where it cannot be kept; attention output in a format that cannot be.
_TYPES = {
    "token_embd.weight": "Q8_0",
    "output.weight": "Q4_1",
    **{f"blk.{i}.attn_{part}.weight": "Q4_1" for i in range(LAYERS) for part in "qkv"},
    **{f"blk.{i}.attn_output.weight": "F16" for i in range(LAYERS)},
    **{f"blk.{i}.ffn_gate.weight": "Q4_0" for i in range(LAYERS)},
    "blk.0.ffn_up.weight": "Q4_0",
    "blk.1.ffn_up.weight": "Q8_0",
    **{f"blk.{i}.ffn_down.weight": "Q8_0" for i in range(LAYERS)},
}
NUM_MATRICES, NUM_KEPT = 2 + 7 * LAYERS, 2 + 3 * LAYERS + 2 + LAYERS


def write_random_gguf(path: Path, *, seed: int = 0) -> Path:
    """Write the model (8192 positions) to ``path``; return it."""
    metadata = tiny_metadata(
        ARCH__context_length=8192,
        ARCH__embedding_length=HIDDEN,
        ARCH__feed_forward_length=FFN,
    )
    metadata["tokenizer.ggml.tokens"] = [f"t{i}" for i in range(VOCAB)]
    metadata["tokenizer.ggml.token_type"] = [3, *[1] * (VOCAB - 1)]
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.standard_normal(shape).astype(np.float32) * np.float32(shape[-1] ** -0.5)
        for name, shape in _matrix_shapes().items()
    }
    # As in tiny_models: embeddings of unit variance, and logits spread widely.
    tensors["token_embd.weight"] *= np.float32(HIDDEN**0.5)
    tensors["output.weight"] *= np.float32(3.0)
    norms = ["output_norm.weight"]
    norms += [f"blk.{i}.{kind}_norm.weight" for i in range(LAYERS) for kind in ("attn", "ffn")]
    tensors |= {name: np.ones(HIDDEN, np.float32) for name in norms}
    return write_gguf(path, metadata, tensors, quantized=_TYPES)


def _matrix_shapes() -> dict[str, tuple[int, int]]:
    layer = {
        "attn_q.weight": (HIDDEN, HIDDEN),
        "attn_k.weight": (KV, HIDDEN),
        "attn_v.weight": (KV, HIDDEN),
        "attn_output.weight": (HIDDEN, HIDDEN),
        "ffn_gate.weight": (FFN, HIDDEN),
        "ffn_up.weight": (FFN, HIDDEN),
        "ffn_down.weight": (HIDDEN, FFN),
    }
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return shapes
