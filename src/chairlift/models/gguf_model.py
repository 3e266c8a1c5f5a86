"""A model from a GGUF file: its sizes, tokenizer metadata and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chairlift.errors import ModelLoadError
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor
from chairlift.models.architectures import ARCHITECTURES, Architecture, gguf_tensor_name
from chairlift.models.fields import MAX_HEAD_DIM, MAX_SIZE, Fields
from chairlift.models.gguf_file import GgufFile, read_gguf
from chairlift.models.loaded_model import (
    GenerationDefaults,
    LoadedModel,
    ModelFormat,
    describe_quantization,
)
from chairlift.models.rope import (
    DefaultRope,
    LinearRope,
    RopeScaling,
    YarnRope,
    rope_frequencies,
    yarn_attention_factor,
)
from chairlift.models.stored_tensor import match_weights
from chairlift.tokenizer_source import GgufTokenizer

_ROPE_DIVISORS = "rope_freqs.weight"
_ARCHITECTURE_KEY = "general.architecture"
# Metadata of features that would change the values and that no supported architecture has.
_REFUSED_KEYS = ("expert_count", "attention.scale", "logit_scale", "residual_scale")


def load_gguf(path: Path, name: str) -> LoadedModel:
    """Describe the model of a GGUF file and map its weights.

    Raises:
        ModelLoadError: The file is broken, or the model of a kind that is not supported.
    """
    file = read_gguf(path)
    architecture = _architecture(file)
    fields = Fields(path, file.metadata, f"{architecture.gguf_name}.")
    tokenizer = _tokenizer(path, file.metadata)
    spec = _spec(file, architecture, fields, len(tokenizer.tokens))
    if len(tokenizer.tokens) > spec.vocab_size:
        raise ModelLoadError(
            f"{path} names {len(tokenizer.tokens)} tokens but its vocabulary has "
            f"{spec.vocab_size}: its metadata and weights do not belong together"
        )
    return LoadedModel(
        spec=spec,
        name=name,
        path=path,
        tokenizer_source=tokenizer,
        weights=_weights(file, spec, architecture),
        files=(path,),
        size_bytes=file.size_bytes,
        format=ModelFormat.GGUF,
        quantization=describe_quantization(file.tensors.values()),
        generation=_generation_defaults(path, file.metadata, len(tokenizer.tokens)),
    )


def _architecture(file: GgufFile) -> Architecture:
    name = Fields(file.path, file.metadata).text(_ARCHITECTURE_KEY)
    for architecture in ARCHITECTURES:
        if architecture.gguf_name == name:
            return architecture
    supported = ", ".join(dict.fromkeys(a.gguf_name for a in ARCHITECTURES))
    raise ModelLoadError(
        f"{file.path} has the architecture {name!r}, which is not supported; supported are "
        f"{supported}: choose a model of one of these"
    )


def _spec(file: GgufFile, architecture: Architecture, fields: Fields, num_tokens: int) -> ModelSpec:
    for key in _REFUSED_KEYS:
        _refuse_unless_neutral(fields, key, 0.0)
    hidden_size = fields.integer("embedding_length")
    num_layers = fields.integer("block_count", most=10_000)
    num_heads = _same_in_all_layers(fields, "attention.head_count", num_layers)
    num_kv_heads = _same_in_all_layers(fields, "attention.head_count_kv", num_layers, num_heads)
    head_dim = _head_dim(fields, hidden_size, num_heads)
    if num_heads % num_kv_heads:
        raise fields.wrong("attention.head_count_kv", f"a divisor of the {num_heads} heads")
    inv_freq, attention_factor = rope_frequencies(
        head_dim,
        fields.number("rope.freq_base", 10_000.0, above=1.0),
        _rope_scaling(fields),
        _rope_divisors(file, head_dim),
    )
    return ModelSpec(
        architecture=architecture.gguf_name,
        vocab_size=fields.integer("vocab_size", num_tokens),
        hidden_size=hidden_size,
        intermediate_size=_same_in_all_layers(fields, "feed_forward_length", num_layers),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=fields.integer("context_length"),
        rope_inv_freq=inv_freq,
        rope_attention_factor=attention_factor,
        sliding_windows=_sliding_windows(fields, num_layers),
        attention_bias=gguf_tensor_name("layers.0.q_proj.bias") in file.tensors,
        attention_output_bias=gguf_tensor_name("layers.0.o_proj.bias") in file.tensors,
        qk_norm=architecture.qk_norm,
        tie_word_embeddings=gguf_tensor_name("lm_head") not in file.tensors,
    )


def _same_in_all_layers(
    fields: Fields, key: str, num_layers: int, default: int | None = None
) -> int:
    """A size that GGUF gives once or for each layer, and that must not differ between layers."""
    value = fields.get(key)
    if not isinstance(value, np.ndarray):
        return fields.integer(key, default)
    sizes = set(value.tolist())
    size = next(iter(sizes), None)
    if len(sizes) != 1 or value.size != num_layers or type(size) is not int or size < 1:
        raise fields.wrong(key, f"one size for all {num_layers} layers")
    return min(size, MAX_SIZE)


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    if not fields.has("attention.key_length") and hidden_size % num_heads:
        raise fields.wrong("attention.head_count", f"a divisor of {hidden_size}")
    head_dim = fields.integer("attention.key_length", hidden_size // num_heads, most=MAX_HEAD_DIM)
    if head_dim % 2:
        raise fields.wrong("attention.key_length", "even")
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(key, head_dim) != head_dim:
            raise fields.wrong(key, f"the size of a head, {head_dim}: others are not supported")
    return head_dim


def _rope_scaling(fields: Fields) -> RopeScaling:
    # Files had a factor alone before they named its type.
    factor_alone = fields.has("rope.scaling.factor") or fields.has("rope.scale_linear")
    kind = fields.text("rope.scaling.type", "linear" if factor_alone else "none")
    if kind == "yarn":
        return _yarn(fields)
    _refuse_unless_neutral(fields, "rope.scaling.attn_factor", 1.0)
    if kind == "none":
        return DefaultRope()
    if kind == "linear":
        old_factor = fields.number("rope.scale_linear", 1.0)
        return LinearRope(fields.number("rope.scaling.factor", old_factor))
    raise fields.wrong("rope.scaling.type", "none, linear or yarn: others are not supported")


def _yarn(fields: Fields) -> YarnRope:
    _refuse_unless_neutral(fields, "rope.scaling.yarn_ext_factor", 1.0)
    _refuse_unless_neutral(fields, "rope.scaling.yarn_log_multiplier", 0.0)
    context = fields.integer("context_length")
    yarn = YarnRope(
        factor=fields.number("rope.scaling.factor"),
        original_context=fields.integer("rope.scaling.original_context_length", context),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
    )
    # GGUF's factors multiply YaRN's own; Hugging Face's takes its place.
    attention_factor = yarn_attention_factor(yarn)
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
        attention_factor *= fields.number(key, 1.0)
    return replace(yarn, attention_factor=attention_factor)


def _refuse_unless_neutral(fields: Fields, key: str, neutral: float) -> None:
    if fields.number(key, neutral, above=-1e30) != neutral:
        raise fields.wrong(key, f"{neutral:g}: others are not supported")


def _rope_divisors(file: GgufFile, head_dim: int) -> npt.NDArray[np.float32] | None:
    tensor = file.tensors.get(_ROPE_DIVISORS)
    if tensor is None:
        return None
    if tensor.tensor_type is not TensorType.F32 or tensor.shape != (head_dim // 2,):
        raise ModelLoadError(
            f"tensor {_ROPE_DIVISORS!r} of {file.path} must be F32 of shape ({head_dim // 2},), "
            f"got {tensor.tensor_type} of {tensor.shape}: its metadata and weights do not belong "
            "together"
        )
    divisors = tensor.data.view(np.float32)
    if not (np.isfinite(divisors).all() and (divisors > 0).all()):
        raise ModelLoadError(
            f"tensor {_ROPE_DIVISORS!r} of {file.path} must hold finite numbers above 0: "
            "download or copy it again"
        )
    return divisors


def _sliding_windows(fields: Fields, num_layers: int) -> tuple[int, ...]:
    window = fields.integer("attention.sliding_window", 0, least=0)
    key = "attention.sliding_window_pattern"
    pattern = fields.get(key)
    if window == 0 or pattern is None:
        return (window,) * num_layers
    if isinstance(pattern, np.ndarray):
        if pattern.size != num_layers:
            raise fields.wrong(key, f"one value for each of the {num_layers} layers")
        return tuple(window if slides else 0 for slides in pattern.tolist())
    every = fields.integer(key, least=0)  # each so manieth layer sees everything; 0: none does
    return tuple(0 if every and (i + 1) % every == 0 else window for i in range(num_layers))


def _weights(
    file: GgufFile, spec: ModelSpec, architecture: Architecture
) -> tuple[WeightTensor, ...]:
    def interleaved_heads(name: str) -> int:
        part = name.rsplit(".", 2 if name.endswith(".bias") else 1)
        heads = {"q_proj": spec.num_heads, "k_proj": spec.num_kv_heads}
        return heads.get(part[1], 0) if architecture.interleaved_in_gguf and len(part) > 1 else 0

    pairs = match_weights(
        spec,
        file.tensors,
        path=file.path,
        name_in_file=gguf_tensor_name,
        may_be_left=lambda name: name == _ROPE_DIVISORS,
    )
    return tuple(
        WeightTensor(name, t.tensor_type, t.shape, t.data, interleaved_heads(name))
        for name, t in pairs
    )


def _tokenizer(path: Path, metadata: Mapping[str, Any]) -> GgufTokenizer:
    fields = Fields(path, metadata, "tokenizer.ggml.")
    tokens = _strings(fields, "tokens")
    if not tokens:
        raise ModelLoadError(
            f"{path} has no tokenizer.ggml.tokens: a GGUF file without its tokenizer is not "
            "supported, convert the model again"
        )

    def token_id(key: str) -> int | None:
        return _token_id(fields, key, len(tokens))

    return GgufTokenizer(
        path=path,
        model=fields.text("model"),
        pre=fields.text("pre", "default"),
        tokens=tokens,
        scores=_numbers(fields, "scores", np.dtype(np.float32), len(tokens)),
        token_types=_numbers(fields, "token_type", np.dtype(np.int32), len(tokens)),
        merges=_strings(fields, "merges"),
        bos_token_id=token_id("bos_token_id"),
        eos_token_id=token_id("eos_token_id"),
        pad_token_id=token_id("padding_token_id"),
        unk_token_id=token_id("unknown_token_id"),
        add_bos=fields.optional_boolean("add_bos_token"),
        add_eos=fields.optional_boolean("add_eos_token"),
        add_space_prefix=fields.boolean("add_space_prefix", True),
        chat_template=Fields(path, metadata).optional_text("tokenizer.chat_template"),
    )


def _strings(fields: Fields, key: str) -> list[str]:
    value = fields.get(key)
    if value is None or (isinstance(value, np.ndarray) and value.size == 0):
        return []
    if not isinstance(value, list) or (value and not isinstance(value[0], str)):
        raise fields.wrong(key, "an array of strings")
    return value


def _numbers(fields: Fields, key: str, dtype: np.dtype[Any], count: int) -> Any:
    """An array of one number per token, or None when the file has none."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.size != count or value.dtype == np.bool_:
        raise fields.wrong(key, f"an array of {count} numbers, one for each token")
    return value.astype(dtype, copy=False)


def _token_id(fields: Fields, key: str, num_tokens: int) -> int | None:
    if not fields.has(key):
        return None
    return fields.integer(key, least=0, most=num_tokens - 1)


def _generation_defaults(
    path: Path, metadata: Mapping[str, Any], num_tokens: int
) -> GenerationDefaults:
    fields = Fields(path, metadata, "tokenizer.ggml.")
    ends = [_token_id(fields, f"{kind}_token_id", num_tokens) for kind in ("eos", "eot", "eom")]
    return GenerationDefaults(
        eos_token_ids=tuple(dict.fromkeys(token for token in ends if token is not None)),
        bos_token_id=_token_id(fields, "bos_token_id", num_tokens),
    )
