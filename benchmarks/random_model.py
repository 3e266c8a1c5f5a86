"""Writes a model of a given shape with random weights, to measure how fast that shape runs.

The folder is in Hugging Face format (Qwen2's architecture, bfloat16), so that every engine can load
it; the tokenizer is copied from another folder, for engines that insist on one. What such a model
says means nothing, but its speed does not depend on that. For example:

    python benchmarks/random_model.py 0.5b ~/random-0.5b --tokenizer ~/smollm2-135m
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

_POOL_SIZE = 1 << 24
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder: its head is its embedding, its queries as wide as its stream."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.hidden_size // self.num_heads

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every tensor, as Qwen2's checkpoints name them."""
        hidden, ffn, kv = self.hidden_size, self.intermediate_size, self.num_kv_heads
        kv *= self.head_dim
        yield "model.embed_tokens.weight", (self.vocab_size, hidden)
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            for name, size in (("q", hidden), ("k", kv), ("v", kv)):
                yield f"{prefix}self_attn.{name}_proj.weight", (size, hidden)
                yield f"{prefix}self_attn.{name}_proj.bias", (size,)
            yield f"{prefix}self_attn.o_proj.weight", (hidden, hidden)
            yield f"{prefix}mlp.gate_proj.weight", (ffn, hidden)
            yield f"{prefix}mlp.up_proj.weight", (ffn, hidden)
            yield f"{prefix}mlp.down_proj.weight", (hidden, ffn)
            yield f"{prefix}input_layernorm.weight", (hidden,)
            yield f"{prefix}post_attention_layernorm.weight", (hidden,)
        yield "model.norm.weight", (hidden,)

    def config(self) -> dict[str, object]:
        """What ``config.json`` holds."""
        return {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 1,
            "eos_token_id": 2,
        }


SHAPES = {
    "tiny": Shape(64, 96, 2, 4, 2, 300),
    "135m": Shape(576, 1536, 30, 9, 3, 49_152),
    "0.5b": Shape(896, 4864, 24, 14, 2, 151_936),
    "1.5b": Shape(1536, 8960, 28, 12, 2, 151_936),
}


def write_model(shape: Shape, folder: Path, tokenizer: Path) -> None:
    """Write the folder: configuration, weights, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=2))
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, folder / name)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, sizes in shape.tensors():
        end = offset + 2 * prod(sizes)
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pool = np.random.default_rng(0).standard_normal(_POOL_SIZE, np.float32)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for index, (name, sizes) in enumerate(shape.tensors()):
            for piece in _values(pool, index, name, sizes):
                file.write(piece.tobytes())


def _values(
    pool: npt.NDArray[np.float32], index: int, name: str, sizes: tuple[int, ...]
) -> Iterator[npt.NDArray[np.uint16]]:
    """bfloat16 bits of one tensor in pieces: gains are one, matrices keep the size of a row."""
    rest = prod(sizes)
    scale = np.float32(sizes[-1] ** -0.5 if len(sizes) == 2 else 0.02)
    values = np.ones(rest, np.float32) if name.endswith("norm.weight") else pool * scale
    # Each tensor starts elsewhere, so that no two are alike.
    values = np.roll(values, -index * 7919)
    while rest:
        piece = values[:rest]
        rest -= piece.size
        yield (piece.view(np.uint32) >> 16).astype(np.uint16)


def main() -> None:
    """Read the command line and write the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", required=True, type=Path, help="folder to copy it from")
    args = parser.parse_args()
    write_model(SHAPES[args.shape], args.folder.expanduser(), args.tokenizer.expanduser())


if __name__ == "__main__":
    main()
