"""config.json: sizes and rotary settings as transformers understands them; the rest refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from chairlift.errors import ModelLoadError
from chairlift.models.fields import Fields
from chairlift.models.hf_config import spec_from_config

PATH = Path("config.json")
BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}


def spec(**changes: Any) -> Any:
    """Spec of a small config with some fields changed; ``...`` removes one."""
    values = {k: v for k, v in (BASE | changes).items() if v is not ...}
    return spec_from_config(Fields(PATH, json.loads(json.dumps(values))))


def refusal(**changes: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        spec(**changes)
    return str(caught.value)


ROPE_SETTINGS = {
    "default": {},
    "theta": {"rope_theta": 1e6},
    "linear": {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "yarn by its old key": {"rope_scaling": {**YARN, "rope_type": ..., "type": "yarn"}},
    "yarn attention factor": {"rope_scaling": YARN | {"attention_factor": 1.5}},
    "yarn betas": {"rope_scaling": YARN | {"beta_fast": 16.0, "beta_slow": 2.0}},
    "yarn mscale": {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.0}},
    "yarn not truncated": {"rope_scaling": YARN | {"truncate": False}},
    "yarn, factor from the contexts": {"rope_scaling": YARN | {"factor": None}},
    "yarn with a factor below one": {"rope_scaling": YARN | {"factor": 0.5}},
    "yarn, context outside": {
        "rope_scaling": YARN,
        "original_max_position_embeddings": 512,
    },
    "transformers 5": {"rope_parameters": LLAMA3 | {"rope_theta": 250000.0}},
    "transformers 5 default": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "both spellings": {"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": YARN},
    "head_dim of its own": {"head_dim": 80, "rope_scaling": YARN},
}


@pytest.mark.parametrize("name", ROPE_SETTINGS)
def test_rotations_are_those_of_transformers(name: str) -> None:
    settings = ROPE_SETTINGS[name]
    for key, value in settings.items():
        if isinstance(value, dict):
            settings = settings | {key: {k: v for k, v in value.items() if v is not ...}}
    ours = spec(**settings)
    config = transformers.LlamaConfig.from_dict(json.loads(json.dumps(BASE | settings)))
    theirs = LlamaRotaryEmbedding(config)
    # They compute in float32, where a power is good to about an ulp and its inverse to another.
    np.testing.assert_allclose(ours.rope_inv_freq, theirs.inv_freq.numpy(), rtol=4 * 2**-23)
    assert ours.rope_attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-12)


CLASSES = ["Llama", "Mistral", "Qwen2", "Qwen3"]


@pytest.mark.parametrize("name", CLASSES)
def test_what_config_json_leaves_out_has_the_class_s_default(name: str) -> None:
    sizes = {key: BASE[key] for key in BASE if key != "architectures"}
    sizes |= {"hidden_size": 4096, "num_attention_heads": 32}
    theirs = getattr(transformers, f"{name}Config")(**sizes)
    ours = spec(architectures=[f"{name}ForCausalLM"], **sizes)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == getattr(theirs, "head_dim", 4096 // 32)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    window = theirs.sliding_window or 0 if name != "Llama" else 0
    assert ours.sliding_windows == (window,) * 3


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("Mistral", {"sliding_window": 7}, (7, 7, 7)),
        ("Mistral", {"sliding_window": None}, (0, 0, 0)),
        ("Llama", {"sliding_window": 7}, (0, 0, 0)),
        ("Qwen2", {"sliding_window": 7}, (0, 0, 0)),
        ("Qwen2", {"sliding_window": 7, "use_sliding_window": True}, (0, 0, 0)),
        (
            "Qwen2",
            {"sliding_window": 7, "use_sliding_window": True, "max_window_layers": 1},
            (0, 7, 7),
        ),
        (
            "Qwen3",
            {
                "sliding_window": 7,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (7, 0, 7),
        ),
    ],
)
def test_sliding_windows_hold_for_the_layers_that_config_json_names(
    architecture: str, changes: dict[str, Any], windows: tuple[int, ...]
) -> None:
    sizes = {"num_key_value_heads": 2, "head_dim": 16}
    ours = spec(architectures=[f"{architecture}ForCausalLM"], **sizes, **changes)
    assert ours.sliding_windows == windows


@pytest.mark.parametrize(
    ("architecture", "changes", "qkv", "output", "norm"),
    [
        ("Llama", {}, False, False, False),
        ("Llama", {"attention_bias": True}, True, True, False),
        ("Mistral", {"attention_bias": True}, False, False, False),
        ("Qwen2", {}, True, False, False),
        ("Qwen3", {}, False, False, True),
        ("Qwen3", {"attention_bias": True}, True, True, True),
    ],
)
def test_biases_and_norms_follow_the_architecture(
    architecture: str, changes: dict[str, Any], qkv: bool, output: bool, norm: bool
) -> None:
    sizes = {"num_key_value_heads": 2}
    ours = spec(architectures=[f"{architecture}ForCausalLM"], **sizes, **changes)
    assert (ours.attention_bias, ours.attention_output_bias, ours.qk_norm) == (qkv, output, norm)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "supported are LlamaForCausalLM, MistralFor"),
        ({"architectures": ...}, "architectures of config.json must be a list"),
        ({"architectures": [1]}, "architectures of config.json must be a list"),
        ({"hidden_size": ...}, "lacks the field hidden_size"),
        ({"hidden_size": "64"}, "hidden_size of config.json must be an integer"),
        ({"hidden_size": True}, "hidden_size of config.json must be an integer"),
        ({"hidden_size": 2**40}, "hidden_size of config.json must be an integer between 1 and"),
        ({"hidden_size": 66}, "num_attention_heads of config.json must be a divisor"),
        ({"num_hidden_layers": 0}, "num_hidden_layers of config.json must be an integer between"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads of config.json must be a divisor of"),
        ({"num_key_value_heads": 8}, "num_key_value_heads of config.json must be an integer"),
        ({"head_dim": 2**20}, "head_dim of config.json must be an integer between 1 and 16384"),
        ({"head_dim": 15}, "head_dim of config.json must be even"),
        ({"rms_norm_eps": 0}, "rms_norm_eps of config.json must be a finite number above 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"rope_theta": 1.0}, "rope_theta of config.json must be a finite number above 1"),
        ({"hidden_act": "gelu"}, "hidden_act of config.json must be silu"),
        ({"mlp_bias": True}, "sets mlp_bias, which is not supported"),
        ({"num_local_experts": 8}, "num_local_experts, which is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config, which is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor of config.json must be 1"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "RoPE scaling 'dynamic', which is"),
        ({"rope_scaling": {"type": "linear"}}, "lacks the field factor"),
        ({"rope_scaling": {"type": 3}}, "type of config.json must be a string"),
        ({"rope_scaling": []}, "rope_scaling of config.json must be a table"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "greater than low_freq_factor"),
        ({"rope_parameters": {"full_attention": {}}}, "the same for all layers"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "partial_rotary_factor of config.json must be 1",
        ),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings of config.json must be true or"),
        (
            {
                "architectures": ["Qwen3ForCausalLM"],
                "num_key_value_heads": 2,
                "use_sliding_window": True,
                "layer_types": ["full_attention"],
            },
            "layer_types of config.json must be a list of 3 kinds",
        ),
        (
            {
                "architectures": ["Qwen3ForCausalLM"],
                "num_key_value_heads": 2,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "chunked_attention", "full_attention"],
            },
            "layer_types of config.json must be of full_attention and sliding_attention",
        ),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(changes: dict[str, Any], message: str) -> None:
    text = refusal(**changes)
    assert message in text
    assert "\n" not in text


ODD_VALUES: list[Any] = [
    None, 0, 1, 2, -1, 2**70, 0.5, -1.5, 1e300, float("nan"), float("inf"), True, False,
    "", "yarn", "llama3", [], [1], ["LlamaForCausalLM"], ["Qwen2ForCausalLM"], {},
    {"rope_type": "yarn", "factor": 1e-9, "beta_fast": 1e29},
    {"rope_type": "llama3", "factor": "x"}, {"type": "linear", "factor": 1e-30},
]  # fmt: skip
KEYS = [
    *BASE, "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "rope_scaling",
    "rope_parameters", "original_max_position_embeddings", "partial_rotary_factor", "layer_types",
    "sliding_window", "use_sliding_window", "max_window_layers", "tie_word_embeddings",
    "attention_bias", "mlp_bias", "hidden_act", "quantization_config",
]  # fmt: skip


@settings(max_examples=500)
@given(changes=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD_VALUES), max_size=5))
def test_no_config_raises_anything_but_a_model_load_error(changes: dict[str, Any]) -> None:
    try:
        described = spec_from_config(Fields(PATH, BASE | changes))
    except ModelLoadError as error:
        assert "\n" not in str(error)
    else:
        assert all(np.isfinite(described.rope_inv_freq))
        assert np.isfinite(described.rope_attention_factor)
