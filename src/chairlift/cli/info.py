"""``chairlift info``: what a model is, what it needs, and what this machine has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from chairlift.cli.arguments import JsonOption, ModelArgument
from chairlift.cli.progress import ensure_fetched
from chairlift.config import DEFAULT_MODEL

if TYPE_CHECKING:
    from chairlift.model_spec import ModelSpec
    from chairlift.models.loaded_model import LoadedModel

Facts: TypeAlias = dict[str, "str | int | float | list[str] | dict[str, int]"]

BYTES_PER_VALUE = {"bfloat16": 2, "float32": 4}
BYTES_PER_WEIGHT = {"int8": 1, **BYTES_PER_VALUE}
_MIB, _GIB = 1 << 20, 1 << 30


def info(model: ModelArgument = DEFAULT_MODEL, *, as_json: JsonOption = False) -> None:
    """Show what MODEL is, how much memory it needs, and what this machine offers.

    No weight is read, so it is quick for large models too.

    Examples:

    \b
      chairlift info
      chairlift info ./model.gguf
      chairlift info Qwen/Qwen3-0.6B --json
    """
    from chairlift.models.loader import load_model

    ensure_fetched(model)
    facts = {"model": model_facts(load_model(model)), "machine": machine_facts()}
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        for heading, group in facts.items():
            print(heading)
            _print_facts(group)


def model_facts(model: LoadedModel) -> Facts:
    """Collect what a model is and needs; bytes as numbers, per dtype where it matters.

    Memory "in gguf" is that of weights kept as in the file; there is none without a matrix to keep.
    """
    from chairlift.kernels.file_formats import kept_weight_bytes, types_to_keep
    from chairlift.models.loaded_model import ModelFormat

    spec = model.spec
    windows = sorted({window for window in spec.sliding_windows if window})
    kept = types_to_keep(model.weights) if model.format is ModelFormat.GGUF else {}
    in_memory = {dtype: spec.num_parameters * size for dtype, size in BYTES_PER_WEIGHT.items()}
    if kept:
        in_memory["gguf"] = kept_weight_bytes(model.weights)
    per_token = kv_bytes_per_token(spec)
    return {
        "name": model.name,
        "path": str(model.path),
        "format": str(model.format),
        "architecture": spec.architecture,
        "parameters": spec.num_parameters,
        "weights_on_disk": model.quantization,
        "size_on_disk_bytes": model.size_bytes,
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "query_heads": spec.num_heads,
        "key_value_heads": spec.num_kv_heads,
        "head_size": spec.head_dim,
        "vocabulary": spec.vocab_size,
        "context_tokens": spec.max_position_embeddings,
        "sliding_window_tokens": ", ".join(map(str, windows)) or "none",
        "matrices": sum(len(tensor.shape) == 2 for tensor in model.weights),
        "kept_as_they_are_in_gguf": len(kept),
        "weights_in_memory_bytes": in_memory,
        "kv_cache_per_token_bytes": per_token,
        "kv_cache_of_one_full_context_bytes": {
            dtype: size * spec.max_position_embeddings for dtype, size in per_token.items()
        },
    }


def kv_bytes_per_token(spec: ModelSpec) -> dict[str, int]:
    """Bytes that a token's keys and values take in all layers together, by type of the cache.

    With int8 each head's key and value has a scale of two bytes.
    """
    heads = 2 * spec.num_layers * spec.num_kv_heads
    plain = {dtype: heads * spec.head_dim * size for dtype, size in BYTES_PER_VALUE.items()}
    return {**plain, "int8": heads * (spec.head_dim + 2)}


def machine_facts() -> Facts:
    """Collect what the kernels and the KV pool may use on this machine."""
    from chairlift.kernels.isa import available_isas, current_isa
    from chairlift.kernels.threads import usable_threads
    from chairlift.runner.memory import usable_memory_bytes

    return {
        "instruction_set": current_isa(),
        "available": available_isas(),
        "threads": usable_threads(),
        "usable_memory_bytes": usable_memory_bytes(),
    }


def _print_facts(facts: Facts) -> None:
    width = max(len(name.removesuffix("_bytes")) for name in facts)
    for name, value in facts.items():
        shown = name.removesuffix("_bytes")
        text = _text(value, is_bytes=shown != name)
        print(f"  {shown.replace('_', ' '):<{width}}  {text}")


def _text(value: object, *, is_bytes: bool) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_text(v, is_bytes=is_bytes)} in {k}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return format_bytes(value) if is_bytes else f"{value:,}"
    return str(value)


def format_bytes(size: int) -> str:
    """Write a number of bytes with a unit that keeps it short."""
    if size >= _GIB:
        return f"{size / _GIB:.2f} GiB"
    if size >= _MIB:
        return f"{size / _MIB:.1f} MiB"
    return f"{size / 1024:.1f} KiB" if size >= 1024 else f"{size} bytes"
