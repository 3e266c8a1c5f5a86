"""Detokenising one token at a time: what comes out when."""

from __future__ import annotations

import pytest
from tests.tiny_models import build_tokenizer
from tests.unit.tokenization.tokenizer_builder import sentencepiece_gguf
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from chairlift.tokenization.detokenizer import IncrementalDetokenizer
from chairlift.tokenization.token_pieces import PieceKind, PieceRule
from chairlift.tokenization.tokenizer import Tokenizer, tokenizer_from_source

SKI_BOOT = "\U0001f3bf"


@pytest.fixture(scope="module")
def bytes_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are the bytes, 256 to 258 the special tokens."""
    return Tokenizer(build_tokenizer(), PieceRule(PieceKind.BYTE_LEVEL), special_tokens={})


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    return tokenizer_from_source(sentencepiece_gguf())


def test_a_split_character_comes_out_with_its_last_byte(bytes_tokenizer: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(bytes_tokenizer)
    pieces = [detokenizer.push(byte) for byte in f"a{SKI_BOOT}b".encode()]
    assert pieces == ["a", "", "", "", SKI_BOOT, "b"]


def test_an_unfinished_character_is_one_replacement_at_the_end(bytes_tokenizer: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(bytes_tokenizer)
    assert [detokenizer.push(byte) for byte in SKI_BOOT.encode()[:3]] == ["", "", ""]
    assert detokenizer.flush() == "�"
    assert detokenizer.flush() == ""
    assert detokenizer.push(ord("x")) == "x"


def test_a_byte_of_no_character_is_replaced_at_once(bytes_tokenizer: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(bytes_tokenizer)
    assert detokenizer.push(0xFF) == "�"
    assert detokenizer.push(0xE4) == ""
    assert detokenizer.push(ord("a")) == "�a"


def test_a_character_begun_in_the_prompt_comes_out_whole(bytes_tokenizer: Tokenizer) -> None:
    data = SKI_BOOT.encode()
    detokenizer = IncrementalDetokenizer(bytes_tokenizer, [*b"prompt ", *data[:2]])
    assert [detokenizer.push(byte) for byte in data[2:]] == ["", SKI_BOOT]


def test_special_tokens_are_left_out_or_shown(bytes_tokenizer: Tokenizer) -> None:
    output = [ord("a"), 258, ord("b")]
    assert IncrementalDetokenizer(bytes_tokenizer).push_all(output) == "ab"
    shown = IncrementalDetokenizer(bytes_tokenizer, skip_special_tokens=False)
    assert [shown.push(token_id) for token_id in output] == ["a", "<|im_end|>", "b"]


def test_an_unknown_id_gives_no_text(bytes_tokenizer: Tokenizer) -> None:
    assert IncrementalDetokenizer(bytes_tokenizer).push(100_000) == ""


def test_a_line_break_of_a_byte_token_comes_out_at_once(sentencepiece: Tokenizer) -> None:
    line_break = 3 + ord("\n")
    assert sentencepiece.token_bytes(line_break) == b"\n"
    assert IncrementalDetokenizer(sentencepiece, [5]).push(line_break) == "\n"


def test_the_first_space_is_dropped_only_where_no_text_stands_before(
    sentencepiece: Tokenizer,
) -> None:
    the, *_ = output = sentencepiece.encode("the the", add_special_tokens=False)
    bos = 1
    assert sentencepiece.token_bytes(the) == b" the"
    assert IncrementalDetokenizer(sentencepiece).push_all(output) == "the the"
    assert IncrementalDetokenizer(sentencepiece, [bos]).push_all(output) == "the the"
    assert IncrementalDetokenizer(sentencepiece, [bos, the]).push_all(output) == " the the"
    shown = IncrementalDetokenizer(sentencepiece, [bos], skip_special_tokens=False)
    assert shown.push_all(output) == " the the"


def test_tokens_of_another_kind_of_vocabulary_are_decoded_with_their_neighbours() -> None:
    words = {w: i for i, w in enumerate(["[UNK]", "play", "##ing", "chess"])}
    backend = Backend(models.WordPiece(words, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    tokenizer = Tokenizer(backend, PieceRule(PieceKind.OTHER), special_tokens={})
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in [1, 2, 3, *[1] * 20]]
    assert pieces == ["play", "ing", " chess", *[" play"] * 20]
    assert IncrementalDetokenizer(tokenizer, [1]).push(2) == "ing"
