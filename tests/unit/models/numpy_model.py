"""The forward pass that a ``LoadedModel`` describes, in plain numpy, to check loading with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chairlift import _native
from chairlift.model_spec import ModelSpec, WeightTensor
from chairlift.models.loaded_model import LoadedModel

Array = npt.NDArray[np.float64]


def weight_values(tensor: WeightTensor, head_dim: int) -> Array:
    """A weight in float64, its rows in rotate-half order."""
    values = _native.dequantize(
        tensor.tensor_type.value, tensor.data, int(np.prod(tensor.shape))
    ).reshape(tensor.shape)
    if tensor.interleaved_heads:
        pairs = values.reshape(tensor.interleaved_heads, head_dim // 2, 2, -1)
        values = pairs.swapaxes(1, 2).reshape(tensor.shape)
    return values.astype(np.float64)


def logits(model: LoadedModel, token_ids: list[int]) -> Array:
    """Logits after each token. [num_tokens, vocab_size]"""
    spec = model.spec
    weights = {w.name: weight_values(w, spec.head_dim) for w in model.weights}
    hidden = weights["embed_tokens"][token_ids]
    cos, sin = _rotation(spec, len(token_ids))
    for layer in range(spec.num_layers):
        prefix = f"layers.{layer}."
        part = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        normed = _norm(hidden, part["input_layernorm"], spec.rms_norm_eps)
        hidden = hidden + _attention(spec, part, normed, cos, sin, spec.sliding_windows[layer])
        normed = _norm(hidden, part["post_attention_layernorm"], spec.rms_norm_eps)
        gate = normed @ part["gate_proj"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (normed @ part["up_proj"].T)) @ (
            part["down_proj"].T
        )
    head = weights["embed_tokens" if spec.tie_word_embeddings else "lm_head"]
    return _norm(hidden, weights["norm"], spec.rms_norm_eps) @ head.T


def _norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotation(spec: ModelSpec, num_tokens: int) -> tuple[Array, Array]:
    angles = np.outer(np.arange(num_tokens), np.tile(spec.rope_inv_freq, 2))
    factor = spec.rope_attention_factor
    return np.cos(angles) * factor, np.sin(angles) * factor


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def _attention(
    spec: ModelSpec, part: dict[str, Array], x: Array, cos: Array, sin: Array, window: int
) -> Array:
    def project(name: str, heads: int) -> Array:
        y = x @ part[name].T + part.get(f"{name}.bias", 0.0)
        return y.reshape(len(x), heads, spec.head_dim).swapaxes(0, 1)

    q, k = project("q_proj", spec.num_heads), project("k_proj", spec.num_kv_heads)
    if spec.qk_norm:
        q = _norm(q, part["q_norm"], spec.rms_norm_eps)
        k = _norm(k, part["k_norm"], spec.rms_norm_eps)
    q, k, v = _rotate(q, cos, sin), _rotate(k, cos, sin), project("v_proj", spec.num_kv_heads)
    group = spec.num_heads // spec.num_kv_heads
    k, v = k.repeat(group, axis=0), v.repeat(group, axis=0)
    distance = np.subtract.outer(np.arange(len(x)), np.arange(len(x)))
    seen = (distance >= 0) & ((distance < window) if window else True)
    scores = np.where(seen, q @ k.swapaxes(1, 2) / np.sqrt(spec.head_dim), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True)) @ v
    flat = mixed.swapaxes(0, 1).reshape(len(x), -1)
    return flat @ part["o_proj"].T + part.get("o_proj.bias", 0.0)
