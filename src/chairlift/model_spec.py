"""What a decoder-only transformer is, as plain numbers; made by ``models``, used by ``kernels``.

One family is described: pre-norm decoder layers with RMSNorm, rotary embeddings (rotate-half
order), grouped-query attention and a SwiGLU MLP. Llama, Mistral, Qwen2 and Qwen3 are switches of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shapes and switches of one model.

    Attributes:
        architecture: Name as in the model's own files, e.g. ``LlamaForCausalLM`` or ``llama``.
        rope_inv_freq: Rotation per position of each pair of dimensions, in radians, scaling
            (linear, llama3, yarn) already applied. [head_dim / 2] floats.
        rope_attention_factor: cos and sin are multiplied by it (yarn; 1.0 otherwise).
        sliding_windows: Per layer, how many tokens back a token may look, itself included;
            0 means all. [num_layers].
        attention_bias: q, k and v projections have a bias (Qwen2).
        qk_norm: RMSNorm over each head of q and k before RoPE (Qwen3).
        max_position_embeddings: Context length the model was made for, in tokens.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_inv_freq: tuple[float, ...]
    rope_attention_factor: float = 1.0
    sliding_windows: tuple[int, ...] = ()
    attention_bias: bool = False
    attention_output_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False

    @property
    def num_parameters(self) -> int:
        """Weights of the matrices and norms; the tied output head counts once."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * q + 2 * kv)
        mlp = 3 * self.hidden_size * self.intermediate_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return (
            self.num_layers * (attention + mlp + 2 * self.hidden_size)
            + embeddings
            + self.hidden_size
        )


class TensorType(StrEnum):
    """Storage formats of weights that can be read; quantised ones are GGUF's block formats."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """One weight as it lies in the model file.

    Attributes:
        name: Canonical name: ``embed_tokens``, ``norm``, ``lm_head``, or
            ``layers.{i}.{part}`` with part one of ``input_layernorm``, ``q_proj``, ``k_proj``,
            ``v_proj``, ``o_proj``, ``q_norm``, ``k_norm``, ``post_attention_layernorm``,
            ``gate_proj``, ``up_proj``, ``down_proj``, and ``{q,k,v,o}_proj.bias``.
        shape: (out_features, in_features) of a matrix, (size,) of a vector.
        data: The raw bytes, rows one after the other. [n] uint8; may be a view of a mapped file.
        interleaved_heads: 0, or the number of heads whose rows alternate between the two halves
            of the rotation, as GGUF stores q and k of the ``llama`` architecture: row ``2 i + j``
            of a head belongs at ``j * head_dim / 2 + i``.
    """

    name: str
    tensor_type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]
    interleaved_heads: int = 0


def expected_weights(spec: ModelSpec) -> Sequence[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all the weights that a model of this spec has, in loading order."""
    q, kv, h = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, spec.hidden_size
    layer: list[tuple[str, tuple[int, ...]]] = [
        ("input_layernorm", (h,)),
        ("q_proj", (q, h)),
        ("k_proj", (kv, h)),
        ("v_proj", (kv, h)),
        ("o_proj", (h, q)),
        ("post_attention_layernorm", (h,)),
        ("gate_proj", (spec.intermediate_size, h)),
        ("up_proj", (spec.intermediate_size, h)),
        ("down_proj", (h, spec.intermediate_size)),
    ]
    if spec.attention_bias:
        layer += [("q_proj.bias", (q,)), ("k_proj.bias", (kv,)), ("v_proj.bias", (kv,))]
    if spec.attention_output_bias:
        layer += [("o_proj.bias", (h,))]
    if spec.qk_norm:
        layer += [("q_norm", (spec.head_dim,)), ("k_norm", (spec.head_dim,))]
    names: list[tuple[str, tuple[int, ...]]] = [("embed_tokens", (spec.vocab_size, h))]
    names += [(f"layers.{i}.{n}", s) for i in range(spec.num_layers) for n, s in layer]
    names += [("norm", (h,))]
    if not spec.tie_word_embeddings:
        names += [("lm_head", (spec.vocab_size, h))]
    return names
