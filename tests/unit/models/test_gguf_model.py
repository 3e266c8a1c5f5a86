"""From GGUF metadata to a model: sizes, rotary settings, tokenizer, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.models.gguf_builder import (
    HEAD_DIM,
    KV_HEADS,
    VOCAB,
    tiny_metadata,
    tiny_shapes,
    tiny_tensors,
    write_gguf,
)

from chairlift.errors import ModelLoadError
from chairlift.model_spec import expected_weights
from chairlift.models.gguf_model import load_gguf
from chairlift.models.loaded_model import LoadedModel, ModelFormat
from chairlift.tokenizer_source import GgufTokenizer

FACTORS = np.array([1, 2, 4, 8], np.float32)


def load(tmp_path: Path, architecture: str = "llama", **changes: Any) -> LoadedModel:
    """Load the tiny model with some metadata changed (see ``tiny_metadata``)."""
    metadata = tiny_metadata(architecture, **changes)
    return load_gguf(write_gguf(tmp_path / "m.gguf", metadata), "tiny")


def load_with(tmp_path: Path, tensors: dict[str, np.ndarray], **changes: Any) -> LoadedModel:
    return load_gguf(write_gguf(tmp_path / "m.gguf", tiny_metadata(**changes), tensors), "tiny")


def refusal(tmp_path: Path, architecture: str = "llama", **changes: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(tmp_path, architecture, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_model_is_described_as_its_metadata_say(tmp_path: Path) -> None:
    model = load(tmp_path)
    spec = model.spec
    assert (spec.architecture, spec.vocab_size, spec.hidden_size) == ("llama", VOCAB, 32)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (2, 4, 2, 8)
    assert (spec.intermediate_size, spec.max_position_embeddings) == (64, 128)
    assert spec.rms_norm_eps == pytest.approx(1e-5)
    assert spec.rope_inv_freq == pytest.approx((1.0, 0.1, 0.01, 0.001))
    assert spec.sliding_windows == (0, 0)
    assert spec.tie_word_embeddings
    assert (model.name, model.format, model.quantization) == ("tiny", ModelFormat.GGUF, "F32")
    assert model.size_bytes == model.path.stat().st_size
    assert model.generation.eos_token_ids == (2,)
    assert model.generation.bos_token_id == 1


def test_weights_come_in_the_expected_order_with_the_file_s_bytes(tmp_path: Path) -> None:
    tensors = tiny_tensors(tiny_shapes(tied=False))
    model = load_with(tmp_path, tensors)
    found = [(w.name, w.shape) for w in model.weights]
    assert found == list(expected_weights(model.spec))
    head = model.weights[-1]
    np.testing.assert_array_equal(head.data.view(np.float32), tensors["output.weight"].reshape(-1))


def test_llama_s_q_and_k_rows_are_marked_as_interleaved_and_qwen2_s_are_not(
    tmp_path: Path,
) -> None:
    biases = {
        f"blk.{layer}.attn_{part}.bias": np.zeros(size, np.float32)
        for layer in range(2)
        for part, size in (("q", 32), ("k", 16), ("v", 16))
    }
    tensors = tiny_tensors() | biases
    llama = load_with(tmp_path, tensors)
    marked = {w.name: w.interleaved_heads for w in llama.weights if w.interleaved_heads}
    assert marked == {
        f"layers.{layer}.{name}": heads
        for layer in range(2)
        for name, heads in (("q_proj", 4), ("k_proj", 2), ("q_proj.bias", 4), ("k_proj.bias", 2))
    }
    qwen2 = load_gguf(write_gguf(tmp_path / "q.gguf", tiny_metadata("qwen2"), tensors), "tiny")
    assert qwen2.spec.attention_bias
    assert not any(w.interleaved_heads for w in qwen2.weights)


def test_a_quantised_model_names_its_formats_largest_first(tmp_path: Path) -> None:
    quantized = {"token_embd.weight": "Q8_0", "blk.0.ffn_up.weight": "Q4_1"}
    path = write_gguf(tmp_path / "m.gguf", quantized=quantized)
    assert load_gguf(path, "tiny").quantization == "F32, Q8_0, Q4_1"


def test_kv_heads_default_to_heads(tmp_path: Path) -> None:
    shapes = tiny_shapes() | {f"blk.{i}.attn_{p}.weight": (32, 32) for i in (0, 1) for p in "kv"}
    model = load_with(tmp_path, tiny_tensors(shapes), ARCH__attention__head_count_kv=None)
    assert model.spec.num_kv_heads == 4


def test_sizes_given_for_each_layer_must_agree(tmp_path: Path) -> None:
    model = load(tmp_path, ARCH__attention__head_count_kv=[2, 2])
    assert model.spec.num_kv_heads == KV_HEADS
    message = refusal(tmp_path, ARCH__attention__head_count_kv=[2, 4])
    assert "must be one size for all 2 layers" in message


@pytest.mark.parametrize(
    ("changes", "inv_freq", "factor"),
    [
        ({"ARCH__rope__freq_base": 16.0}, (1.0, 0.5, 0.25, 0.125), 1.0),
        (
            {"ARCH__rope__scaling__type": "linear", "ARCH__rope__scaling__factor": 2.0},
            (0.5, 0.05, 0.005, 0.0005),
            1.0,
        ),
        ({"ARCH__rope__scale_linear": 4.0}, (0.25, 0.025, 0.0025, 0.00025), 1.0),
        ({"ARCH__rope__scaling__type": "none"}, (1.0, 0.1, 0.01, 0.001), 1.0),
        (
            # The pair that turns n times over 32 positions is 8 ln(32 / (2 pi n)) / (2 ln 10000):
            # 0.41 for two turns and 0.71 for one. Rounded outwards, pair 0 is kept, others halved.
            {
                "ARCH__rope__scaling__type": "yarn",
                "ARCH__rope__scaling__factor": 2.0,
                "ARCH__rope__scaling__original_context_length": 32,
                "ARCH__rope__scaling__yarn_beta_fast": 2.0,
                "ARCH__rope__scaling__yarn_beta_slow": 1.0,
                "ARCH__rope__scaling__yarn_attn_factor": 3.0,
            },
            (1.0, 0.05, 0.005, 0.0005),
            3.0 * (1.0 + 0.1 * np.log(2.0)),
        ),
    ],
)
def test_rotary_scaling_is_applied(
    tmp_path: Path, changes: dict[str, Any], inv_freq: tuple[float, ...], factor: float
) -> None:
    spec = load(tmp_path, **changes).spec
    assert spec.rope_inv_freq == pytest.approx(inv_freq)
    assert spec.rope_attention_factor == pytest.approx(factor)


def test_rotary_factors_of_a_tensor_divide_the_frequencies(tmp_path: Path) -> None:
    model = load_with(tmp_path, tiny_tensors() | {"rope_freqs.weight": FACTORS})
    assert model.spec.rope_inv_freq == pytest.approx((1.0, 0.05, 0.0025, 0.000125))


@pytest.mark.parametrize("bad", [FACTORS[:3], FACTORS * 0, FACTORS * np.float32(np.nan)])
def test_rotary_factors_that_cannot_be_are_refused(tmp_path: Path, bad: np.ndarray) -> None:
    with pytest.raises(ModelLoadError, match=r"rope_freqs\.weight"):
        load_with(tmp_path, tiny_tensors() | {"rope_freqs.weight": bad})


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (None, (16, 16)),
        ([True, False], (16, 0)),
        ([0, 1], (0, 16)),
        (2, (16, 0)),
        (1, (0, 0)),
        (0, (16, 16)),
    ],
)
def test_the_sliding_window_follows_its_pattern(
    tmp_path: Path, pattern: Any, windows: tuple[int, ...]
) -> None:
    changes = {"ARCH__attention__sliding_window": 16}
    if pattern is not None:
        changes["ARCH__attention__sliding_window_pattern"] = pattern
    assert load(tmp_path, **changes).spec.sliding_windows == windows


def test_the_tokenizer_s_metadata_are_handed_on(tmp_path: Path) -> None:
    changes = {
        "tokenizer__ggml__add_bos_token": True,
        "tokenizer__ggml__add_space_prefix": False,
        "tokenizer__ggml__scores": [0.5] * VOCAB,
        "tokenizer__ggml__unknown_token_id": 0,
        "tokenizer__chat_template": "{{ messages }}",
    }
    source = load(tmp_path, **changes).tokenizer_source
    assert isinstance(source, GgufTokenizer)
    assert (source.model, source.pre) == ("gpt2", "smollm")
    assert list(source.tokens) == [f"t{i}" for i in range(VOCAB)]
    assert list(source.merges) == ["t 1", "t 2"]
    assert source.token_types is not None
    assert (source.token_types.dtype, source.token_types[:2].tolist()) == (np.int32, [3, 1])
    assert source.scores is not None
    assert (source.scores.dtype, source.scores.size) == (np.float32, VOCAB)
    assert (source.bos_token_id, source.eos_token_id, source.unk_token_id) == (1, 2, 0)
    assert (source.pad_token_id, source.add_bos, source.add_eos) == (None, True, None)
    assert source.add_space_prefix is False
    assert source.chat_template == "{{ messages }}"


def test_all_ids_that_end_a_text_are_collected_once(tmp_path: Path) -> None:
    ends = {"tokenizer__ggml__eot_token_id": 7, "tokenizer__ggml__eom_token_id": 2}
    assert load(tmp_path, **ends).generation.eos_token_ids == (2, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general__architecture": "gpt2"}, "'gpt2', which is not supported; supported are llama"),
        ({"general__architecture": None}, "lacks the field general.architecture"),
        ({"general__architecture": 3}, "general.architecture of"),
        ({"ARCH__block_count": None}, "lacks the field llama.block_count"),
        ({"ARCH__block_count": 0}, "llama.block_count of"),
        ({"ARCH__block_count": 3}, "lacks the tensor 'blk.2.attn_norm.weight'"),
        ({"ARCH__block_count": 1}, "does not use, such as 'blk.1.attn_k.weight' (9 in all)"),
        ({"ARCH__embedding_length": 64}, "has shape (40, 32), but the model's sizes ask for"),
        ({"ARCH__embedding_length": 30}, "attention.head_count of"),
        ({"ARCH__feed_forward_length": 65}, "'blk.0.ffn_gate.weight'"),
        ({"ARCH__attention__head_count_kv": 3}, "must be a divisor of the 4 heads"),
        ({"ARCH__attention__key_length": HEAD_DIM - 1}, "key_length of"),
        ({"ARCH__attention__key_length": 2**30}, "must be an integer between 1 and 16384"),
        ({"ARCH__attention__value_length": 16}, "must be the size of a head, 8"),
        ({"ARCH__rope__dimension_count": 4}, "must be the size of a head, 8"),
        ({"ARCH__attention__layer_norm_rms_epsilon": -1.0}, "a finite number above 0"),
        ({"ARCH__rope__freq_base": float("nan")}, "a finite number above 1"),
        ({"ARCH__rope__scaling__type": "longrope"}, "must be none, linear or yarn"),
        ({"ARCH__rope__scaling__attn_factor": 2.0}, "attn_factor of"),
        ({"ARCH__expert_count": 8}, "llama.expert_count of"),
        ({"ARCH__vocab_size": 41}, "'token_embd.weight'"),
        ({"ARCH__vocab_size": 39}, "names 40 tokens but its vocabulary has 39"),
        ({"tokenizer__ggml__tokens": None}, "has no tokenizer.ggml.tokens"),
        ({"tokenizer__ggml__tokens": [1, 2]}, "tokens of"),
        ({"tokenizer__ggml__model": None}, "lacks the field tokenizer.ggml.model"),
        ({"tokenizer__ggml__token_type": [1]}, "an array of 40 numbers, one for each token"),
        ({"tokenizer__ggml__merges": "t 1"}, "must be an array of strings"),
        ({"tokenizer__ggml__eos_token_id": VOCAB}, "must be an integer between 0 and 39"),
        ({"tokenizer__ggml__add_bos_token": 1}, "must be true or false"),
        ({"tokenizer__chat_template": 1}, "tokenizer.chat_template of"),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in refusal(tmp_path, **changes)


def test_a_window_pattern_without_a_window_means_nothing(tmp_path: Path) -> None:
    model = load(tmp_path, ARCH__attention__sliding_window_pattern=[True, False])
    assert model.spec.sliding_windows == (0, 0)


def test_a_window_pattern_of_another_length_is_refused(tmp_path: Path) -> None:
    changes = {
        "ARCH__attention__sliding_window": 16,
        "ARCH__attention__sliding_window_pattern": [True],
    }
    assert "one value for each of the 2 layers" in refusal(tmp_path, **changes)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny_tensors()
    del tensors["blk.1.ffn_down.weight"]
    with pytest.raises(ModelLoadError, match=r"lacks the tensor 'blk\.1\.ffn_down\.weight'"):
        load_with(tmp_path, tensors)


def test_a_tensor_that_nothing_uses_is_refused(tmp_path: Path) -> None:
    tensors = tiny_tensors() | {"blk.0.ffn_gate.bias": np.zeros(64, np.float32)}
    with pytest.raises(ModelLoadError, match=r"does not use, such as 'blk\.0\.ffn_gate\.bias'"):
        load_with(tmp_path, tensors)


def test_qwen3_needs_its_norms(tmp_path: Path) -> None:
    message = refusal(tmp_path, "qwen3")
    assert "lacks the tensor 'blk.0.attn_q_norm.weight'" in message


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    yarn = {
        "ARCH__rope__scaling__type": "yarn",
        "ARCH__rope__scaling__factor": 2.0,
        "ARCH__attention__sliding_window": 16,
        "tokenizer__chat_template": "{{ messages }}",
    }
    tensors = tiny_tensors() | {"rope_freqs.weight": FACTORS}
    return path, write_gguf(path, tiny_metadata(**yarn), tensors).read_bytes()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6))
def test_no_damage_raises_anything_but_a_model_load_error(
    whole_file: tuple[Path, bytes], changes: list[tuple[int, int]]
) -> None:
    path, whole = whole_file
    data = bytearray(whole)
    for position, value in changes:
        data[position] = value
    path.write_bytes(data)
    try:
        model = load_gguf(path, "fuzzed")
    except ModelLoadError as error:
        assert "\n" not in str(error)
    else:
        assert [w.name for w in model.weights] == [n for n, _ in expected_weights(model.spec)]


ODD_VALUES: list[Any] = [
    0,
    1,
    2**32 - 1,
    -1.0,
    0.0,
    float("nan"),
    float("inf"),
    True,
    "",
    "yarn",
    [1, 2],
    [0.5, -1.0],
    [True, False],
    ["a", "b"],
]
MORE_KEYS = [
    "general.alignment",
    "split.count",
    "llama.expert_count",
    "llama.vocab_size",
    "llama.attention.key_length",
    "llama.attention.sliding_window",
    "llama.attention.sliding_window_pattern",
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.attn_factor",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.chat_template",
]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(
        st.sampled_from(sorted([*tiny_metadata(), *MORE_KEYS])),
        st.sampled_from(ODD_VALUES),
        min_size=1,
        max_size=3,
    )
)
def test_no_metadata_raise_anything_but_a_model_load_error(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_metadata() | changes)
    try:
        model = load_gguf(path, "odd")
    except ModelLoadError as error:
        assert "\n" not in str(error)
    else:
        assert all(np.isfinite(model.spec.rope_inv_freq))
