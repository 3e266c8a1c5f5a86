"""Write small GGUF files with the gguf package's own writer, so that the reader has a reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, LAYERS, VOCAB = 32, 64, 4, 2, 2, 40
HEAD_DIM = HIDDEN // HEADS


def tiny_metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    """Metadata of a tiny model; ``changes`` replace keys (dots as ``__``), None removes one."""
    metadata: dict[str, Any] = {
        "general.architecture": architecture,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 128,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": FFN,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(VOCAB)],
        "tokenizer.ggml.token_type": [3, *[1] * (VOCAB - 1)],
        "tokenizer.ggml.merges": ["t 1", "t 2"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    for key, value in changes.items():
        name = key.replace("__", ".").replace("ARCH", architecture)
        if value is None:
            metadata.pop(name)
        else:
            metadata[name] = value
    return metadata


def tiny_shapes(*, tied: bool = True, layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Tensor names and row-major shapes of the tiny model, as GGUF names them."""
    kv = KV_HEADS * HEAD_DIM
    layer = {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HIDDEN, HIDDEN),
        "attn_k.weight": (kv, HIDDEN),
        "attn_v.weight": (kv, HIDDEN),
        "attn_output.weight": (HIDDEN, HIDDEN),
        "ffn_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (FFN, HIDDEN),
        "ffn_up.weight": (FFN, HIDDEN),
        "ffn_down.weight": (HIDDEN, FFN),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN)}
    for index in range(layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    shapes["output_norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["output.weight"] = (VOCAB, HIDDEN)
    return shapes


def tiny_tensors(shapes: Mapping[str, tuple[int, ...]] | None = None) -> dict[str, np.ndarray]:
    """Random float32 tensors of these shapes."""
    rng = np.random.default_rng(0)
    shapes = tiny_shapes() if shapes is None else shapes
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    *,
    quantized: Mapping[str, str] | None = None,
) -> Path:
    """Write a file; ``quantized`` gives the storage type of tensors that are not F32."""
    metadata = tiny_metadata() if metadata is None else metadata
    writer = gguf.GGUFWriter(path, arch="unused")
    writer.kv_data[0].clear()
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, tensor in (tiny_tensors() if tensors is None else tensors).items():
        kind = gguf.GGMLQuantizationType[(quantized or {}).get(name, "F32")]
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)
        case (vtype, item):  # an explicit gguf.GGUFValueType
            writer.add_key_value(key, item, vtype)
        case _:
            raise TypeError(f"no GGUF type for {value!r}")
