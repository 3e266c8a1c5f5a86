"""Whole models: what loading describes computes what transformers computes in float32.

Models of random weights are saved by transformers itself, and the same weights are written once
more as GGUF the way converters do. A forward pass in plain numpy shows whether a difference is
loading's; the product's kernels show that the whole chain agrees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.unit.models.gguf_builder import write_gguf
from tests.unit.models.numpy_model import logits

from chairlift.kernels.cpu_model import CpuModel, FlatBatch
from chairlift.models.architectures import gguf_tensor_name, hf_tensor_name
from chairlift.models.loaded_model import LoadedModel
from chairlift.models.loader import load_model

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}


@dataclass(frozen=True)
class Case:
    """A model class, its settings beyond the sizes, and the GGUF metadata that say the same."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    gguf: dict[str, Any] = field(default_factory=dict)


CASES = {
    "llama": Case("Llama"),
    "llama, tied": Case("Llama", {"tie_word_embeddings": True}),
    "llama, biases": Case("Llama", {"attention_bias": True}),
    "llama, one head for all": Case("Llama", {"num_key_value_heads": 1}),
    "llama, head_dim of its own": Case(
        "Llama",
        {"head_dim": 24},
        {"attention.key_length": 24, "attention.value_length": 24, "rope.dimension_count": 24},
    ),
    "llama, llama3 rope": Case("Llama", {"rope_parameters": LLAMA3}),
    "llama, linear rope": Case(
        "Llama",
        {"rope_parameters": LINEAR},
        {"rope.freq_base": 5000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
    ),
    "mistral": Case("Mistral", {"sliding_window": None}),
    "mistral, sliding window": Case(
        "Mistral", {"sliding_window": 9}, {"attention.sliding_window": 9}
    ),
    "qwen2": Case("Qwen2"),
    "qwen2, some layers slide": Case(
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
        {
            "attention.sliding_window": 7,
            "attention.sliding_window_pattern": [False, True, True],
        },
    ),
    "qwen2, yarn": Case(
        "Qwen2",
        {"rope_parameters": YARN},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
        },
    ),
    "qwen3": Case("Qwen3", {"head_dim": 32}, {"attention.key_length": 32}),
    "qwen3, tied": Case(
        "Qwen3",
        {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True},
        {"attention.key_length": 16},
    ),
}
TOKENS = np.random.default_rng(3).integers(3, 97, 48).tolist()


def build(case: Case) -> Any:
    """A transformers model with random weights, biases and norms, larger than it would start."""
    config = getattr(transformers, f"{case.name}Config")(**(SIZES | case.settings))
    model = getattr(transformers, f"{case.name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if "norm" in name else 0.0
            parameter.copy_(center + 0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def reference_logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def save_folder(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def save_gguf(model: Any, case: Case, path: Path) -> Path:
    """Write a model as converters do: GGUF's names, and Llama's q and k rows in pairs."""
    config = model.config
    kind = {"Mistral": "llama"}.get(case.name, case.name.lower())
    canonical = {hf_tensor_name(n): n for n in all_names(config.num_hidden_layers)}
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    tensors = {}
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = parameter.numpy()
        if kind == "llama" and (".q_proj" in name or ".k_proj" in name):
            halves = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        tensors[gguf_tensor_name(canonical[name])] = np.ascontiguousarray(values)
    if config.rope_parameters["rope_type"] == "llama3":
        plain = 10000.0 ** -(np.arange(0, head_dim, 2) / head_dim)
        scaled = model.model.rotary_emb.inv_freq.numpy()
        tensors["rope_freqs.weight"] = (plain / scaled).astype(np.float32)
    metadata = {
        "general.architecture": kind,
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        f"{kind}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(config.vocab_size)],
    }
    metadata |= {f"{kind}.{key}": value for key, value in case.gguf.items()}
    return write_gguf(path, metadata, tensors)


def all_names(num_layers: int) -> list[str]:
    parts = ["input_layernorm", "post_attention_layernorm", "q_norm", "k_norm"]
    parts += [f"{p}_proj" for p in ("q", "k", "v", "o", "gate", "up", "down")]
    parts += [f"{p}_proj.bias" for p in "qkvo"]
    layers = [f"layers.{i}.{part}" for i in range(num_layers) for part in parts]
    return ["embed_tokens", "norm", "lm_head", *layers]


def native_logits(model: LoadedModel) -> np.ndarray:
    """Logits of all ``TOKENS`` from the kernels in float32, in one step over blocks of 16."""
    num_tokens, block_size = len(TOKENS), 16
    kernels = CpuModel(
        model.spec, dtype="float32", num_threads=1, max_num_batched_tokens=num_tokens
    )
    for weight in model.weights:
        kernels.set_weight(weight)
    kernels.finish_loading()
    num_blocks = -(-num_tokens // block_size)
    kernels.allocate_kv(num_blocks, block_size)
    batch = FlatBatch(
        token_ids=np.array(TOKENS, np.int32),
        positions=np.arange(num_tokens, dtype=np.int32),
        query_start_loc=np.array([0, num_tokens], np.int32),
        seq_lens=np.array([num_tokens], np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        slot_mapping=np.arange(num_tokens, dtype=np.int64),
    )
    kernels.forward(batch)
    out = np.empty((num_tokens, model.spec.vocab_size), np.float32)
    kernels.compute_logits(np.arange(num_tokens, dtype=np.int32), out)
    return out


def assert_same_logits(found: np.ndarray, expected: np.ndarray) -> None:
    # transformers works in float32: 3 layers of sums over some 100 products of numbers near 1.
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=scale * 2e-5, rtol=0)


@dataclass(frozen=True)
class Saved:
    """A case's model on disk in both formats, and the logits that transformers computes."""

    paths: dict[str, Path]
    expected: np.ndarray


@pytest.fixture(scope="module", params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp("case")
    model = build(case)
    paths = {
        "huggingface": save_folder(model, folder / "model"),
        "gguf": save_gguf(model, case, folder / "m.gguf"),
    }
    return Saved(paths, reference_logits(model))


@pytest.mark.parametrize("model_format", ["huggingface", "gguf"])
def test_a_loaded_model_describes_what_transformers_computes(
    saved: Saved, model_format: str
) -> None:
    loaded = load_model(str(saved.paths[model_format]))
    assert loaded.format == model_format
    assert_same_logits(logits(loaded, TOKENS), saved.expected)


@pytest.mark.parametrize("model_format", ["huggingface", "gguf"])
def test_the_kernels_compute_from_it_what_transformers_computes(
    saved: Saved, model_format: str
) -> None:
    loaded = load_model(str(saved.paths[model_format]))
    assert_same_logits(native_logits(loaded), saved.expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_shards_hold_the_same_weights(dtype: str, tmp_path: Path) -> None:
    model = build(CASES["qwen2"]).to(getattr(torch, dtype))
    folder = save_folder(model, tmp_path / "model", max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    loaded = load_model(str(folder))
    assert loaded.quantization == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    # Not the model at hand: casting it has rounded its rotary frequencies too.
    widened = transformers.Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert_same_logits(logits(loaded, TOKENS), reference_logits(widened))
