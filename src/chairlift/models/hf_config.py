"""config.json of a Hugging Face model: its sizes and switches as a ``ModelSpec``.

Both spellings of rotary settings are read: ``rope_theta`` with ``rope_scaling`` (transformers 4)
and ``rope_parameters`` (transformers 5). What is left out has the default of the model's own class.
"""

from __future__ import annotations

from chairlift.errors import ModelLoadError
from chairlift.model_spec import ModelSpec
from chairlift.models.architectures import ARCHITECTURES, Architecture
from chairlift.models.fields import MAX_HEAD_DIM, Fields
from chairlift.models.rope import (
    DefaultRope,
    LinearRope,
    Llama3Rope,
    RopeScaling,
    YarnRope,
    rope_frequencies,
)

_DEFAULT_THETA = 10_000.0
_ROPE_KINDS = ("default", "linear", "llama3", "yarn")
# Settings whose presence (other than the value given) makes another model than the family has.
_REFUSED = (
    ("quantization_config", None, "choose a checkpoint that is not quantised, or a GGUF file"),
    ("mlp_bias", False, "choose a model without it"),
    ("num_local_experts", 0, "choose a model without a mixture of experts"),
    ("num_experts", 0, "choose a model without a mixture of experts"),
)


def spec_from_config(config: Fields) -> ModelSpec:
    """Describe the model of a config.json.

    Raises:
        ModelLoadError: A field is missing, of the wrong type or out of bounds, or asks for
            something that is not supported; the message names it.
    """
    architecture = _architecture(config)
    _refuse_unsupported(config)
    hidden_size = config.integer("hidden_size")
    num_layers = config.integer("num_hidden_layers", most=10_000)
    num_heads = config.integer("num_attention_heads")
    num_kv_heads = config.integer(
        "num_key_value_heads", architecture.default_kv_heads or num_heads, most=num_heads
    )
    if num_heads % num_kv_heads:
        raise config.wrong("num_key_value_heads", f"a divisor of the {num_heads} heads")
    head_dim = _head_dim(config, architecture, hidden_size, num_heads)
    theta, scaling = _rope(config)
    inv_freq, attention_factor = rope_frequencies(head_dim, theta, scaling)
    optional_bias = architecture.optional_bias and config.boolean("attention_bias", False)
    return ModelSpec(
        architecture=architecture.hf_name,
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        max_position_embeddings=config.integer("max_position_embeddings"),
        rope_inv_freq=inv_freq,
        rope_attention_factor=attention_factor,
        sliding_windows=_sliding_windows(config, architecture, num_layers),
        attention_bias=architecture.qkv_bias or optional_bias,
        attention_output_bias=optional_bias,
        qk_norm=architecture.qk_norm,
        tie_word_embeddings=config.boolean("tie_word_embeddings", False),
    )


def _architecture(config: Fields) -> Architecture:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise config.wrong("architectures", "a list with the name of the model's class")
    for architecture in ARCHITECTURES:
        if architecture.hf_name == names[0]:
            return architecture
    supported = ", ".join(a.hf_name for a in ARCHITECTURES)
    raise ModelLoadError(
        f"{config.path} has the architecture {names[0]!r}, which is not supported; supported are "
        f"{supported}: choose a model of one of these"
    )


def _refuse_unsupported(config: Fields) -> None:
    for key, neutral, way_out in _REFUSED:
        if config.get(key) not in (None, neutral):
            raise ModelLoadError(f"{config.path} sets {key}, which is not supported: {way_out}")
    if config.text("hidden_act", "silu") not in ("silu", "swish"):
        raise config.wrong("hidden_act", "silu: other activations are not supported")


def _head_dim(config: Fields, architecture: Architecture, hidden_size: int, num_heads: int) -> int:
    default = architecture.default_head_dim
    if default is None:
        if not config.has("head_dim") and hidden_size % num_heads:
            raise config.wrong("num_attention_heads", f"a divisor of hidden_size {hidden_size}")
        default = hidden_size // num_heads
    head_dim = config.integer("head_dim", default, most=MAX_HEAD_DIM)
    if head_dim % 2:
        raise config.wrong("head_dim", "even")
    return head_dim


def _rope(config: Fields) -> tuple[float, RopeScaling]:
    rope = config.table("rope_scaling")
    if not rope.values:
        rope = config.table("rope_parameters")
    if any(isinstance(value, dict) for value in rope.values.values()):
        raise config.wrong("rope_parameters", "the same for all layers: others are not supported")
    theta = config.number("rope_theta", _DEFAULT_THETA, above=1.0)
    for fields in (config, rope):
        if fields.number("partial_rotary_factor", 1.0) != 1.0:
            raise fields.wrong("partial_rotary_factor", "1: others are not supported")
    return rope.number("rope_theta", theta, above=1.0), _scaling(config, rope)


def _scaling(config: Fields, rope: Fields) -> RopeScaling:
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return DefaultRope()
    if kind == "linear":
        return LinearRope(rope.number("factor"))
    if kind not in _ROPE_KINDS:
        raise ModelLoadError(
            f"{config.path} asks for the RoPE scaling {kind!r}, which is not supported; supported "
            f"are {', '.join(_ROPE_KINDS)}: choose another model"
        )
    original = _original_context(config, rope)
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if high <= low:
            raise rope.wrong("high_freq_factor", f"greater than low_freq_factor {low:g}")
        return Llama3Rope(rope.number("factor"), low, high, original)
    implied = config.integer("max_position_embeddings") / original
    return YarnRope(
        factor=rope.number("factor", implied),
        original_context=original,
        attention_factor=rope.number("attention_factor") if rope.has("attention_factor") else None,
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        mscale=rope.number("mscale", 0.0, above=-1.0),
        mscale_all_dim=rope.number("mscale_all_dim", 0.0, above=-1.0),
        truncate=rope.boolean("truncate", True),
    )


def _original_context(config: Fields, rope: Fields) -> int:
    """The context before scaling; a value beside the rotary settings wins over one among them."""
    key = "original_max_position_embeddings"
    if config.has(key):
        return config.integer(key)
    return rope.integer(key, config.integer("max_position_embeddings"))


def _sliding_windows(
    config: Fields, architecture: Architecture, num_layers: int
) -> tuple[int, ...]:
    """Window of each layer; null in config.json means none, absence the class's default."""
    if architecture.default_window == 0:
        return (0,) * num_layers
    stated = "sliding_window" in config.values and not config.has("sliding_window")
    window = config.integer("sliding_window", 0 if stated else architecture.default_window, least=0)
    if not architecture.window_by_layer:
        return (window,) * num_layers
    if not config.boolean("use_sliding_window", False):
        return (0,) * num_layers
    kinds = config.get("layer_types")
    if kinds is None:
        first = config.integer("max_window_layers", 28, least=0)
        return tuple(window if layer >= first else 0 for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise config.wrong("layer_types", f"a list of {num_layers} kinds, one for each layer")
    windows = {"full_attention": 0, "sliding_attention": window}
    if any(not isinstance(kind, str) or kind not in windows for kind in kinds):
        raise config.wrong("layer_types", "of full_attention and sliding_attention only")
    return tuple(windows[kind] for kind in kinds)
