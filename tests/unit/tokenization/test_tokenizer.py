"""Tokenizers read from a model's files, against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tokenization.samples import TEXTS, TEXTS_WITH_SPECIAL_TOKENS
from tests.unit.tokenization.tokenizer_builder import (
    Trained,
    sentencepiece_gguf,
    sentencepiece_json,
    sentencepiece_vocabulary,
    train_byte_level,
)
from tokenizers import pre_tokenizers as pre
from tokenizers import processors

from chairlift.errors import InvalidParameterError, ModelLoadError
from chairlift.models.loader import load_model
from chairlift.tokenization.chat_template import chat_template_from_source
from chairlift.tokenization.token_pieces import PieceKind
from chairlift.tokenization.tokenizer import Tokenizer, tokenizer_from_source
from chairlift.tokenizer_source import TokenizerFiles, TokenizerSource

REFERENCE = Path(__file__).parents[2] / "data" / "smollm2_greedy.json"


@pytest.fixture(scope="module")
def byte_level() -> Trained:
    return train_byte_level(pre.ByteLevel(add_prefix_space=False), name="gpt-2")


@pytest.fixture(scope="module")
def tokenizer(byte_level: Trained) -> Tokenizer:
    return tokenizer_from_source(byte_level.gguf)


@pytest.fixture(scope="module")
def smollm2_source() -> Iterator[TokenizerSource]:
    yield load_model("smollm2-135m").tokenizer_source


@pytest.mark.e2e
def test_the_default_model_tokenises_the_reference_prompts(smollm2_source: TokenizerSource) -> None:
    tokenizer = tokenizer_from_source(smollm2_source)
    template = chat_template_from_source(smollm2_source, tokenizer.special_tokens)
    assert template is not None
    for case in json.loads(REFERENCE.read_text())["cases"]:
        if case["kind"] == "chat":
            text = template.render(case["messages"])
            ids = tokenizer.encode(text, add_special_tokens=False)
        else:
            ids = tokenizer.encode(case["prompt"], add_special_tokens=True)
        assert ids == case["prompt_ids"]
        assert tokenizer.decode(case["output_ids"], skip_special_tokens=False) == case["text"]


@pytest.mark.e2e
def test_the_default_model_tokenises_as_transformers_does(smollm2_source: TokenizerSource) -> None:
    from transformers import AutoTokenizer

    path = load_model("smollm2-135m").path
    reference = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer = tokenizer_from_source(smollm2_source)
    # In GGUF files transformers knows no "smollm" and cuts words as GPT-2 does; the model's own
    # tokenizer.json cuts before and after every digit first.
    cuts = [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    reference.backend_tokenizer.pre_tokenizer = pre.Sequence(cuts)
    for text in (*TEXTS, *TEXTS_WITH_SPECIAL_TOKENS):
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert ids == reference.encode(text), text
        assert tokenizer.decode(ids, skip_special_tokens=True) == reference.decode(
            ids, skip_special_tokens=True
        )


def with_template(trained: Trained, template: str, folder: Path, **config: Any) -> TokenizerFiles:
    """The vocabulary in a folder whose tokenizer.json puts ``template`` around texts."""
    bos, eos = trained.gguf.bos_token_id, trained.gguf.eos_token_id
    trained.backend.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<|endoftext|>", bos), ("<|im_end|>", eos)]
    )
    files = trained.write(folder, bos_token="<|endoftext|>", eos_token="<|im_end|>", **config)
    trained.backend.post_processor = None
    return files


@pytest.mark.parametrize("template", ["$A", "<|endoftext|> $A", "<|endoftext|> $A <|im_end|>"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"add_bos_token": True},
        {"add_bos_token": False},
        {"add_eos_token": True},
        {"add_bos_token": True, "add_eos_token": True},
    ],
)
def test_bos_and_eos_are_added_as_transformers_adds_them(
    byte_level: Trained, template: str, config: dict[str, bool], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    files = with_template(byte_level, template, tmp_path, **config)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = tokenizer_from_source(files)
    for add_special_tokens in (False, True):
        ids = tokenizer.encode("Hello", add_special_tokens=add_special_tokens)
        assert ids == reference.encode("Hello", add_special_tokens=add_special_tokens)


def test_tokens_that_only_the_config_marks_are_special(byte_level: Trained, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    entry = {"content": "he", "special": True, "normalized": False}
    he_id = byte_level.backend.token_to_id("he")
    files = byte_level.write(tmp_path, added_tokens_decoder={str(he_id): entry}, unk_token="ing")
    reference = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = tokenizer_from_source(files)
    ids = tokenizer.encode("over there: sing", add_special_tokens=True)
    assert ids == reference.encode("over there: sing")
    assert tokenizer.is_special(he_id)
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == reference.decode(ids, skip_special_tokens=True) == "over tre: s"


def test_special_tokens_that_the_vocabulary_lacks_get_no_id(
    byte_level: Trained, tmp_path: Path
) -> None:
    files = byte_level.write(tmp_path, pad_token="[PAD]", bos_token="[BOS]")
    tokenizer = tokenizer_from_source(files)
    assert tokenizer.vocab_size == byte_level.backend.get_vocab_size()
    assert tokenizer.bos_token_id is None
    assert max(tokenizer.encode("[PAD][BOS]", add_special_tokens=True)) < tokenizer.vocab_size


def test_limits_and_padding_of_training_are_ignored(byte_level: Trained, tmp_path: Path) -> None:
    byte_level.backend.enable_truncation(2)
    byte_level.backend.enable_padding(length=8)
    files = byte_level.write(tmp_path)
    byte_level.backend.no_truncation()
    byte_level.backend.no_padding()
    tokenizer = tokenizer_from_source(files)
    ids = tokenizer.encode("zqj", add_special_tokens=True)
    assert tokenizer.decode(ids, skip_special_tokens=False) == "zqj"


@pytest.mark.parametrize("content", ["", "{}", "[1, 2", '{"model": {"type": "Novel"}}'])
def test_a_broken_tokenizer_json_is_refused_with_its_path(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not a tokenizer"):
        tokenizer_from_source(TokenizerFiles(path))


def test_a_broken_list_of_added_tokens_is_refused(byte_level: Trained, tmp_path: Path) -> None:
    files = byte_level.write(tmp_path, added_tokens_decoder={"5": {"content": 5}})
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not a tokenizer"):
        tokenizer_from_source(files)


def test_a_lone_surrogate_is_refused_with_its_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidParameterError, match=r"U\+D83D at character 2") as caught:
        tokenizer.encode("ab\ud83d", add_special_tokens=True)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("token_id", [-1, 5000, 2**32, 2**70])
def test_an_unknown_id_decodes_to_nothing(tokenizer: Tokenizer, token_id: int) -> None:
    assert tokenizer.token_bytes(token_id) == b""
    assert tokenizer.decode([token_id], skip_special_tokens=False) == ""
    assert not tokenizer.is_special(token_id)


@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_decoding_equals_the_librarys(byte_level: Trained, tokenizer: Tokenizer) -> None:
    for token_id in range(tokenizer.vocab_size):
        for skip in (False, True):
            text = tokenizer.decode([token_id, 70, token_id], skip_special_tokens=skip)
            assert text == byte_level.backend.decode(
                [token_id, 70, token_id], skip_special_tokens=skip
            )


def test_part_of_a_character_shows_as_a_replacement_in_a_tokens_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("\U0001f3bf", add_special_tokens=False)
    assert len(ids) > 1
    assert tokenizer.decode(ids[:1], skip_special_tokens=False) == "�"
    assert (
        tokenizer.token_bytes(ids[0]) == "\U0001f3bf".encode()[: len(tokenizer.token_bytes(ids[0]))]
    )


def test_an_added_token_keeps_letters_that_byte_level_vocabularies_use_for_bytes(
    byte_level: Trained, tmp_path: Path
) -> None:
    files = byte_level.write(tmp_path)
    data = json.loads(files.tokenizer_json.read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    data["added_tokens"].append({"id": 999, "content": "õé", **flags})
    files.tokenizer_json.write_text(json.dumps(data))
    tokenizer = tokenizer_from_source(files)
    ids = tokenizer.encode("xõéx", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == "xõéx"


def test_the_longest_token_is_measured_in_bytes(byte_level: Trained, tokenizer: Tokenizer) -> None:
    longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
    assert tokenizer.max_token_bytes == longest
    spm = tokenizer_from_source(sentencepiece_gguf())
    assert spm.max_token_bytes == max(len(spm.token_bytes(i)) for i in range(spm.vocab_size))


def test_a_llama_2_tokenizer_json_is_read_as_sentencepiece(tmp_path: Path) -> None:
    tokens, _, _ = sentencepiece_vocabulary()
    path = tmp_path / "tokenizer.json"
    backend = sentencepiece_json(tokens, [])
    backend.save(str(path))
    tokenizer = tokenizer_from_source(TokenizerFiles(path))
    assert tokenizer.rule.kind is PieceKind.SENTENCEPIECE
    for text in ("", "a", " a", "a b\n", "<s>a</s>", "\U0001f3bf!"):
        ids = tokenizer.encode(text, add_special_tokens=True)
        for skip in (False, True):
            decoded = tokenizer.decode(ids, skip_special_tokens=skip)
            assert decoded == backend.decode(ids, skip_special_tokens=skip)


def test_importing_the_tokenizer_imports_nothing_slow() -> None:
    import subprocess
    import sys

    slow = ("jinja2", "torch", "transformers", "huggingface_hub", "pydantic")
    script = (
        "import sys, chairlift.tokenization.tokenizer, chairlift.tokenization.chat_template;"
        f"print(*set({slow}) & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b""
