"""A folder in Hugging Face format: its tokenizer files, advice on generation, and what may lack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.tiny_models import write_random_model

from chairlift.errors import ModelLoadError
from chairlift.models.hf_folder import load_hf_folder, missing_files
from chairlift.models.loaded_model import LoadedModel, ModelFormat
from chairlift.tokenizer_source import TokenizerFiles


@pytest.fixture
def folder(tmp_path: Path, random_model_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(random_model_path, tmp_path / "model"))


def load(folder: Path) -> LoadedModel:
    return load_hf_folder(folder, "tiny")


def source(folder: Path) -> TokenizerFiles:
    tokenizer = load(folder).tokenizer_source
    assert isinstance(tokenizer, TokenizerFiles)
    return tokenizer


def refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change(path: Path, **changes: Any) -> None:
    """Replace fields of a JSON file, made if absent; ``...`` removes one."""
    values = json.loads(path.read_text()) if path.exists() else {}
    values = {k: v for k, v in (values | changes).items() if v is not ...}
    path.write_text(json.dumps(values))


def split_into_shards(folder: Path) -> None:
    """Turn the one weight file into two shards and their index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2]}
    shards["model-00002-of-00002.safetensors"] = names[1::2]
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    weight_map = {name: file for file, part in shards.items() for name in part}
    change(folder / "model.safetensors.index.json", weight_map=weight_map)


def test_a_folder_is_described(folder: Path) -> None:
    model = load(folder)
    assert (model.name, model.path, model.format) == ("tiny", folder, ModelFormat.HUGGING_FACE)
    assert model.size_bytes == (folder / "model.safetensors").stat().st_size
    assert model.spec.vocab_size == 300


def test_shards_hold_the_same_weights_as_one_file(folder: Path) -> None:
    whole = load(folder).weights
    split_into_shards(folder)
    model = load(folder)
    assert [w.name for w in model.weights] == [w.name for w in whole]
    for ours, theirs in zip(model.weights, whole, strict=True):
        np.testing.assert_array_equal(ours.data, theirs.data)
    assert model.size_bytes == sum(f.stat().st_size for f in folder.glob("*.safetensors"))


def test_a_missing_shard_is_named(folder: Path) -> None:
    split_into_shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "lacks model-00002-of-00002.safetensors, which" in refusal(folder)


@pytest.mark.parametrize("file", ["../model.safetensors", 3, "", "..", []])
def test_an_index_cannot_name_files_elsewhere(folder: Path, file: Any) -> None:
    split_into_shards(folder)
    change(folder / "model.safetensors.index.json", weight_map={"w": file})
    assert "weight_map" in refusal(folder)


def test_an_empty_index_is_refused(folder: Path) -> None:
    split_into_shards(folder)
    change(folder / "model.safetensors.index.json", weight_map={})
    assert "weight_map" in refusal(folder)


def test_weights_in_another_format_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "save the model as safetensors" in refusal(folder)


def test_a_tied_head_that_is_stored_again_is_passed_over(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    change(folder / "config.json", tie_word_embeddings=True)
    assert "lm_head" not in {w.name for w in load(folder).weights}


def test_saved_rotary_frequencies_are_passed_over(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    save_file(tensors, folder / "model.safetensors")
    assert all("rotary" not in w.name for w in load(folder).weights)


def test_a_tensor_that_nothing_uses_is_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.gate_proj.lora_A"] = np.ones(8, np.float32)
    save_file(tensors, folder / "model.safetensors")
    assert "does not use, such as 'model.layers.0.mlp.gate_proj.lora_A'" in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\xff", "9" * 5000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_json_that_is_none_is_refused(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="latin-1")
    assert name in refusal(folder)


def test_what_is_missing_is_listed(folder: Path) -> None:
    assert missing_files(folder) == []
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    assert missing_files(folder) == ["tokenizer.json", "model.safetensors"]


def test_special_tokens_come_as_text_or_as_tables(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    table = {"content": "<pad>", "lstrip": False}
    change(folder / "tokenizer_config.json", bos_token="<s>", pad_token=table, unk_token=None)
    change(folder / "special_tokens_map.json", unk_token={"content": "<unk>"}, bos_token="no")
    tokenizer = source(folder)
    assert (tokenizer.bos_token, tokenizer.pad_token, tokenizer.unk_token) == (
        "<s>",
        "<pad>",
        "<unk>",
    )
    assert tokenizer.config["bos_token"] == "<s>"
    assert tokenizer.tokenizer_json == folder / "tokenizer.json"


def test_what_the_tokenizer_adds_is_handed_on(folder: Path) -> None:
    change(folder / "tokenizer_config.json", add_bos_token=True, add_eos_token=...)
    assert (source(folder).add_bos_token, source(folder).add_eos_token) == (True, None)


def test_a_template_file_wins_over_the_configured_one(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder / "tokenizer_config.json", chat_template="configured")
    assert source(folder).chat_template == "configured"
    (folder / "chat_template.jinja").write_text("file")
    assert source(folder).chat_template == "file"


def test_the_default_of_several_templates_is_taken(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    change(folder / "tokenizer_config.json", chat_template=templates)
    assert source(folder).chat_template == "d"
    change(folder / "tokenizer_config.json", chat_template=templates[:1])
    assert source(folder).chat_template is None


def test_a_folder_without_tokenizer_config_is_loaded(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer = source(folder)
    assert (tokenizer.config, tokenizer.chat_template, tokenizer.bos_token) == ({}, None, None)


def test_generation_advice_is_read(folder: Path) -> None:
    change(
        folder / "generation_config.json",
        eos_token_id=[5, 6, 5],
        bos_token_id=1,
        temperature=0.7,
        top_k=20,
        top_p=0.8,
        repetition_penalty=1.05,
    )
    advice = load(folder).generation
    assert (advice.eos_token_ids, advice.bos_token_id) == ((5, 6), 1)
    assert (advice.temperature, advice.top_k, advice.top_p) == (0.7, 20, 0.8)
    assert (advice.min_p, advice.repetition_penalty) == (None, 1.05)


def test_ids_come_from_config_json_where_generation_config_is_silent(folder: Path) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)
    change(folder / "config.json", eos_token_id=7, bos_token_id=None)
    advice = load(folder).generation
    assert (advice.eos_token_ids, advice.bos_token_id) == ((7,), None)


@pytest.mark.parametrize(
    ("key", "value"),
    [("eos_token_id", 300), ("eos_token_id", [1, "2"]), ("temperature", "hot"), ("top_k", -1)],
)
def test_advice_that_cannot_be_is_refused(folder: Path, key: str, value: Any) -> None:
    change(folder / "generation_config.json", **{key: value})
    assert f"{key} of {folder / 'generation_config.json'}" in refusal(folder)


def test_weights_of_another_size_than_config_json_says_are_refused(tmp_path: Path) -> None:
    folder = write_random_model(tmp_path / "model")
    change(folder / "config.json", intermediate_size=130)
    assert "has shape (128, 64), but the model's sizes ask for (130, 64)" in refusal(folder)
