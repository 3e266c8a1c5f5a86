"""Tiny Llama models in Hugging Face format, made in the test session: no file is downloaded.

Two kinds, both with a byte-level BPE tokenizer and a ChatML-like template:

* ``write_random_model``: random weights, real attention. What it says means nothing, but it
  depends on every token before, so it shows whether batching, caching or preemption changes it.
* ``write_successor_model``: attention and MLP add nothing, and the head maps each token to one
  fixed next token (``SUCCESSORS``), so tests know the text: after ``ABC`` comes ``DEFGHIJ...``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN = "<|im_end|>"
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{- raise_exception('this template knows no role ' + message['role']) }}"
    "{%- endif %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

# Separated by commas: the two parts of a merge hold no comma.
_MERGES = (
    "Ġ t,h e,Ġt he,i n,e r,Ġ a,o n,Ġ s,a t,n d,o r,e n,Ġ w,i s,i t,e s,Ġa nd,o u,in g,Ġ c,Ġ o,"
    "Ġ b,a l,Ġ f,Ġ m,e d,Ġ p,r e,a r,l l,Ġo f,Ġt o,a n,Ġ in,Ġ h,l e,Ġ d,o m,u t,s t,Ġ Ġ"
)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes of a tiny Llama; the vocabulary's comes from the tokenizer."""

    hidden_size: int = 64
    intermediate_size: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_position_embeddings: int = 8192


def byte_symbols() -> list[str]:
    """Printable stand-in of each byte in byte-level BPE vocabularies, by byte value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    symbols = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [symbols[b] for b in range(256)]


def build_tokenizer(merges: str = "") -> Tokenizer:
    """Byte-level BPE: ids 0-255 are the bytes, then one id per merge, then the special tokens."""
    parts = [merge.split(" ") for merge in merges.split(",") if merge]
    pairs = [(left, right) for left, right in parts]
    tokens = byte_symbols() + [left + right for left, right in pairs]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    return tokenizer


def write_random_model(folder: Path, *, seed: int = 0, shape: TinyShape | None = None) -> Path:
    """Write a model of random weights (vocabulary of 300 tokens) into ``folder``; return it."""
    shape = shape or TinyShape()
    tokenizer = build_tokenizer(_MERGES)
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.standard_normal(size).astype(np.float32) * np.float32(size[-1] ** -0.5)
        for name, size in _matrix_shapes(shape, tokenizer.get_vocab_size()).items()
    }
    # Embeddings of unit variance, and logits spread widely enough that greedy choices are clear.
    weights["model.embed_tokens.weight"] *= np.float32(shape.hidden_size**0.5)
    weights["lm_head.weight"] *= np.float32(3.0)
    return _write_folder(folder, tokenizer, shape, weights)


def _build_successors() -> dict[int, int]:
    """Next token of each token of the successor model, by id (bytes, then special tokens)."""
    eos = 256 + SPECIAL_TOKENS.index(EOS_TOKEN)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    cycles = [letters, "\N{SKI AND SKI BOOT}".encode(), "\u96ea".encode()]
    successors = {b: (cycle * 2)[i + 1] for cycle in cycles for i, b in enumerate(cycle)}
    successors |= {ord(" "): ord("\n"), ord("\n"): ord("A"), ord("!"): ord("."), ord("."): eos}
    rest = [token for token in range(256 + len(SPECIAL_TOKENS)) if token not in successors]
    return successors | dict(zip(rest, rest[1:] + rest[:1], strict=True))


SUCCESSORS: dict[int, int] = _build_successors()
"""What the successor model continues with: A..Z a..z 0..9 in a circle; the bytes of U+1F3BF and
of U+96EA each in a circle; space -> newline -> A; ``!`` -> ``.`` -> end of sequence."""


def write_successor_model(folder: Path) -> Path:
    """Write the model that follows ``SUCCESSORS`` into ``folder``; return it.

    A token's embedding is a random vector of +1 and -1 and the head's row for its successor is
    that vector times 1/4 (exact in bfloat16): the successor's logit is 16, of the others about 2.
    """
    shape = TinyShape()
    tokenizer = build_tokenizer()
    vocab_size = tokenizer.get_vocab_size()
    rng = np.random.default_rng(1)
    weights = {
        name: np.zeros(size, np.float32) for name, size in _matrix_shapes(shape, vocab_size).items()
    }
    embeddings = rng.choice([-1.0, 1.0], (vocab_size, shape.hidden_size)).astype(np.float32)
    weights["model.embed_tokens.weight"] = embeddings
    for token, successor in SUCCESSORS.items():
        weights["lm_head.weight"][successor] += embeddings[token] / 4
    return _write_folder(folder, tokenizer, shape, weights)


def _matrix_shapes(shape: TinyShape, vocab_size: int) -> dict[str, tuple[int, int]]:
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    hidden, inner = shape.hidden_size, shape.intermediate_size
    layer = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes = {"model.embed_tokens.weight": (vocab_size, hidden)}
    for i in range(shape.num_layers):
        shapes |= {f"model.layers.{i}.{name}.weight": size for name, size in layer.items()}
    return shapes | {"lm_head.weight": (vocab_size, hidden)}


def _write_folder(
    folder: Path,
    tokenizer: Tokenizer,
    shape: TinyShape,
    matrices: dict[str, npt.NDArray[np.float32]],
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    one = np.ones(shape.hidden_size, np.float32)
    norms = {"model.norm.weight": one}
    for i in range(shape.num_layers):
        norms[f"model.layers.{i}.input_layernorm.weight"] = one
        norms[f"model.layers.{i}.post_attention_layernorm.weight"] = one
    save_file(matrices | norms, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "config.json", _config(tokenizer, shape))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": EOS_TOKEN,
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    return folder


def _config(tokenizer: Tokenizer, shape: TinyShape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(EOS_TOKEN),
    }


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
