"""A model from a folder in Hugging Face format: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chairlift.errors import ModelLoadError
from chairlift.model_spec import ModelSpec, WeightTensor
from chairlift.models.architectures import hf_tensor_name
from chairlift.models.fields import Fields
from chairlift.models.hf_config import spec_from_config
from chairlift.models.loaded_model import (
    GenerationDefaults,
    LoadedModel,
    ModelFormat,
    describe_quantization,
)
from chairlift.models.safetensors_file import read_safetensors
from chairlift.models.stored_tensor import StoredTensor, match_weights
from chairlift.tokenizer_source import TokenizerFiles

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_TOKENIZER = "tokenizer.json"
_MAX_JSON_BYTES = 1 << 28


def load_hf_folder(path: Path, name: str) -> LoadedModel:
    """Describe the model of a folder and map its weights.

    Raises:
        ModelLoadError: A file is missing or broken, or the model of a kind that is not supported.
    """
    config = _read_json(path / _CONFIG)
    spec = spec_from_config(config)
    tokenizer = _tokenizer(path)
    files = _weight_files(path)
    stored: dict[str, StoredTensor] = {}
    for file in files:
        stored |= read_safetensors(file)
    return LoadedModel(
        spec=spec,
        name=name,
        path=path,
        tokenizer_source=tokenizer,
        weights=_weights(path, spec, stored),
        files=tuple(files),
        size_bytes=sum(file.stat().st_size for file in files),
        format=ModelFormat.HUGGING_FACE,
        quantization=describe_quantization(stored.values()),
        generation=_generation_defaults(path, config, spec.vocab_size),
    )


def missing_files(path: Path) -> list[str]:
    """Names of the files that loading would not find in a folder; empty when it is whole."""
    needed = [_CONFIG, _TOKENIZER]
    missing = [name for name in needed if not (path / name).exists()]
    try:
        _weight_files(path)
    except ModelLoadError:
        missing.append(_WEIGHTS)
    return missing


def _read_json(path: Path) -> Fields:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ModelLoadError(f"{path} is too large for a description: {_MAX_JSON_BYTES} bytes")
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ModelLoadError(f"{path} is not JSON: download or copy it again") from None
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path} must hold a JSON object: download or copy it again")
    return Fields(path, values)


def _read_json_if_there(path: Path) -> Fields:
    return _read_json(path) if path.exists() else Fields(path, {})


def _weight_files(path: Path) -> list[Path]:
    """The safetensors files of a folder; all of them exist."""
    if (path / _WEIGHTS).exists():
        return [path / _WEIGHTS]
    if not (path / _INDEX).exists():
        raise ModelLoadError(
            f"{path} has neither {_WEIGHTS} nor {_INDEX}: weights in other formats are not "
            "supported, save the model as safetensors"
        )
    index = _read_json(path / _INDEX)
    names = list(index.table("weight_map").values.values())
    if not names or not all(_is_file_name(name) for name in names):
        raise index.wrong("weight_map", "a table of tensors and safetensors files of this folder")
    files = [path / name for name in sorted(set(names))]
    for file in files:
        if not file.exists():
            raise ModelLoadError(
                f"{path} lacks {file.name}, which {_INDEX} names: download the model again"
            )
    return files


def _is_file_name(name: Any) -> bool:
    """Whether an index's entry names a weight file beside it, and nothing elsewhere."""
    return isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name


def _weights(
    path: Path, spec: ModelSpec, stored: dict[str, StoredTensor]
) -> tuple[WeightTensor, ...]:
    head = hf_tensor_name("lm_head")

    def may_be_left(name: str) -> bool:
        # Old checkpoints saved the rotary frequencies; some tied ones repeat the embedding.
        tied_head = name == head and spec.tie_word_embeddings
        return tied_head or name.endswith("rotary_emb.inv_freq")

    pairs = match_weights(
        spec, stored, path=path, name_in_file=hf_tensor_name, may_be_left=may_be_left
    )
    return tuple(WeightTensor(name, t.tensor_type, t.shape, t.data) for name, t in pairs)


def _tokenizer(path: Path) -> TokenizerFiles:
    if not (path / _TOKENIZER).exists():
        raise ModelLoadError(
            f"{path} lacks {_TOKENIZER}: other tokenizer files are not supported, save the "
            "tokenizer in its fast form"
        )
    config = _read_json_if_there(path / "tokenizer_config.json")
    special = _read_json_if_there(path / "special_tokens_map.json")

    def token(key: str) -> str | None:
        return _token_text(config, key) or _token_text(special, key)

    return TokenizerFiles(
        tokenizer_json=path / _TOKENIZER,
        config=config.values,
        chat_template=_chat_template(path, config),
        bos_token=token("bos_token"),
        eos_token=token("eos_token"),
        pad_token=token("pad_token"),
        unk_token=token("unk_token"),
        add_bos_token=config.optional_boolean("add_bos_token"),
        add_eos_token=config.optional_boolean("add_eos_token"),
    )


def _token_text(fields: Fields, key: str) -> str | None:
    """A special token's text; written as it is, or as a table with its properties."""
    value = fields.get(key)
    if isinstance(value, dict):
        return fields.table(key).text("content")
    return fields.optional_text(key)


def _chat_template(path: Path, config: Fields) -> str | None:
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"cannot read {file}: {error}") from None
    templates = config.get("chat_template")
    if isinstance(templates, list):  # several, by name
        named = [t for t in templates if isinstance(t, dict) and t.get("name") == "default"]
        return Fields(config.path, named[0]).text("template") if named else None
    return config.optional_text("chat_template")


def _generation_defaults(path: Path, config: Fields, vocab_size: int) -> GenerationDefaults:
    """From generation_config.json; special ids from config.json where that is silent."""
    advice = _read_json_if_there(path / "generation_config.json")

    def number(key: str) -> float | None:
        return advice.number(key, above=-1e-9) if advice.has(key) else None

    def ids(key: str) -> tuple[int, ...]:
        fields = advice if advice.has(key) else config
        return _token_ids(fields, key, vocab_size)

    return GenerationDefaults(
        eos_token_ids=ids("eos_token_id"),
        bos_token_id=next(iter(ids("bos_token_id")), None),
        temperature=number("temperature"),
        top_k=advice.integer("top_k", least=0) if advice.has("top_k") else None,
        top_p=number("top_p"),
        min_p=number("min_p"),
        repetition_penalty=number("repetition_penalty"),
    )


def _token_ids(fields: Fields, key: str, vocab_size: int) -> tuple[int, ...]:
    value: Any = fields.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(token) is not int or not 0 <= token < vocab_size for token in values):
        raise fields.wrong(key, f"ids between 0 and {vocab_size - 1}")
    return tuple(dict.fromkeys(values))
