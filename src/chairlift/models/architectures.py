"""The supported architectures and the names that model files give to their weights."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Part of a layer as ``WeightTensor.name`` has it, in Hugging Face's and in GGUF's files.
_LAYER_PARTS = (
    ("input_layernorm", "input_layernorm.weight", "attn_norm.weight"),
    ("q_proj", "self_attn.q_proj.weight", "attn_q.weight"),
    ("k_proj", "self_attn.k_proj.weight", "attn_k.weight"),
    ("v_proj", "self_attn.v_proj.weight", "attn_v.weight"),
    ("o_proj", "self_attn.o_proj.weight", "attn_output.weight"),
    ("q_proj.bias", "self_attn.q_proj.bias", "attn_q.bias"),
    ("k_proj.bias", "self_attn.k_proj.bias", "attn_k.bias"),
    ("v_proj.bias", "self_attn.v_proj.bias", "attn_v.bias"),
    ("o_proj.bias", "self_attn.o_proj.bias", "attn_output.bias"),
    ("q_norm", "self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("k_norm", "self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("post_attention_layernorm", "post_attention_layernorm.weight", "ffn_norm.weight"),
    ("gate_proj", "mlp.gate_proj.weight", "ffn_gate.weight"),
    ("up_proj", "mlp.up_proj.weight", "ffn_up.weight"),
    ("down_proj", "mlp.down_proj.weight", "ffn_down.weight"),
)
_HF_NAMES = {
    "embed_tokens": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
} | {name: hf for name, hf, _ in _LAYER_PARTS}
_GGUF_NAMES = {
    "embed_tokens": "token_embd.weight",
    "norm": "output_norm.weight",
    "lm_head": "output.weight",
} | {name: gguf for name, _, gguf in _LAYER_PARTS}
_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one architecture differs from the family that ``ModelSpec`` describes.

    Attributes:
        hf_name: Its class in ``architectures`` of config.json.
        gguf_name: Its ``general.architecture`` in GGUF.
        default_kv_heads: ``num_key_value_heads`` of a config.json that leaves it out; None means
            one for each query head.
        default_head_dim: Likewise ``head_dim``; None means hidden size over heads.
        qkv_bias: q, k and v always have biases.
        optional_bias: ``attention_bias`` of config.json adds biases to q, k, v and o.
        qk_norm: q and k are normalised.
        window_by_layer: The sliding window holds for the layers that config.json names, and
            only if it says ``use_sliding_window``; otherwise it holds for all.
        default_window: Sliding window of a config.json that leaves it out; 0 is none.
        interleaved_in_gguf: GGUF stores the rows of q and k in pairs (see ``WeightTensor``).
    """

    hf_name: str
    gguf_name: str
    default_kv_heads: int | None = None
    default_head_dim: int | None = None
    qkv_bias: bool = False
    optional_bias: bool = False
    qk_norm: bool = False
    window_by_layer: bool = False
    default_window: int = 0
    interleaved_in_gguf: bool = False


# The defaults are those of each class's configuration in transformers. GGUF has no name of its own
# for Mistral, whose files say "llama": the first of a GGUF name counts there.
ARCHITECTURES = (
    Architecture("LlamaForCausalLM", "llama", optional_bias=True, interleaved_in_gguf=True),
    Architecture(
        "MistralForCausalLM",
        "llama",
        default_kv_heads=8,
        default_window=4096,
        interleaved_in_gguf=True,
    ),
    Architecture(
        "Qwen2ForCausalLM",
        "qwen2",
        default_kv_heads=32,
        qkv_bias=True,
        window_by_layer=True,
        default_window=4096,
    ),
    Architecture(
        "Qwen3ForCausalLM",
        "qwen3",
        default_kv_heads=32,
        default_head_dim=128,
        optional_bias=True,
        qk_norm=True,
        window_by_layer=True,
        default_window=4096,
    ),
)


def hf_tensor_name(name: str) -> str:
    """Translate a canonical weight name to that of a Hugging Face checkpoint."""
    layer = _LAYER_NAME.fullmatch(name)
    if layer is None:
        return _HF_NAMES[name]
    return f"model.layers.{layer[1]}.{_HF_NAMES[layer[2]]}"


def gguf_tensor_name(name: str) -> str:
    """Translate a canonical weight name to that of a GGUF file."""
    layer = _LAYER_NAME.fullmatch(name)
    if layer is None:
        return _GGUF_NAMES[name]
    return f"blk.{layer[1]}.{_GGUF_NAMES[layer[2]]}"
