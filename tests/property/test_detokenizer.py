"""Pieces of detokenised text, put together, are the text of all tokens at once."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny_models import build_tokenizer
from tests.unit.tokenization.tokenizer_builder import sentencepiece_gguf
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from tokenizers import pre_tokenizers as pre

from chairlift.tokenization.detokenizer import IncrementalDetokenizer
from chairlift.tokenization.token_pieces import PieceKind, PieceRule
from chairlift.tokenization.tokenizer import Tokenizer, tokenizer_from_source

SPACE_MARK = "▁"  # SentencePiece writes spaces so, and cannot tell them from the character itself
KINDS = ("byte_level", "sentencepiece", "metaspace")


@lru_cache
def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "byte_level":
        rule = PieceRule(PieceKind.BYTE_LEVEL)
        return Tokenizer(build_tokenizer("Ġ t,h e,Ġt he,Ã ©,ð Ł"), rule, special_tokens={})
    if kind == "sentencepiece":
        return tokenizer_from_source(sentencepiece_gguf())
    words = ["<unk>", "▁the", "▁cat", "s", "▁", "▁中文", "!"]
    backend = Backend(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend, PieceRule(PieceKind.OTHER), special_tokens={})


def deltas(
    tokenizer: Tokenizer, prompt: list[int], output: list[int], *, skip: bool
) -> tuple[list[str], str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skip)
    return [detokenizer.push(token_id) for token_id in output], detokenizer.flush()


@st.composite
def ids_of_bytes_and_words(draw: st.DrawFn, kind: str) -> list[int]:
    """Token ids with many bytes, so that characters come split, whole and broken."""
    tokenizer = tokenizer_of(kind)
    any_id = st.integers(0, tokenizer.vocab_size - 1)
    if kind == "metaspace":
        return draw(st.lists(any_id, max_size=12))
    # Both vocabularies list the bytes in order.
    text = st.text(alphabet="é你🎿a \n", max_size=3)
    first_byte = 3 if kind == "sentencepiece" else 0
    encoded = text.map(lambda t: [first_byte + b for b in t.encode()])
    runs = draw(st.lists(st.one_of(encoded, any_id.map(lambda i: [i])), max_size=8))
    return [token_id for run in runs for token_id in run]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=150)
@given(st.data(), st.booleans())
def test_deltas_join_to_the_text_of_all_tokens(kind: str, data: st.DataObject, skip: bool) -> None:
    tokenizer = tokenizer_of(kind)
    output = data.draw(ids_of_bytes_and_words(kind))
    pieces, rest = deltas(tokenizer, [], output, skip=skip)
    assert "".join(pieces) + rest == tokenizer.decode(output, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=150)
@given(st.data(), st.booleans())
def test_deltas_continue_the_text_of_the_prompt(kind: str, data: st.DataObject, skip: bool) -> None:
    tokenizer = tokenizer_of(kind)
    prompt = data.draw(ids_of_bytes_and_words(kind))
    output = data.draw(ids_of_bytes_and_words(kind))
    before, _ = deltas(tokenizer, [], prompt, skip=skip)
    pieces, rest = deltas(tokenizer, prompt, output, skip=skip)
    whole = tokenizer.decode(prompt + output, skip_special_tokens=skip)
    assert "".join(before) + "".join(pieces) + rest == whole


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 5))
def test_tokens_taken_together_give_the_text_they_give_one_by_one(
    kind: str, data: st.DataObject, size: int
) -> None:
    tokenizer = tokenizer_of(kind)
    output = data.draw(ids_of_bytes_and_words(kind))
    pieces, _ = deltas(tokenizer, [], output, skip=True)
    together = IncrementalDetokenizer(tokenizer)
    joined = [
        together.push_all(output[start : start + size]) for start in range(0, len(output), size)
    ]
    assert "".join(joined) == "".join(pieces)


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
@settings(deadline=None, max_examples=100)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters=SPACE_MARK), max_size=20))
def test_split_characters_never_become_replacements(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    output = tokenizer.encode(text, add_special_tokens=False)
    pieces, rest = deltas(tokenizer, [], output, skip=False)
    assert "".join(pieces) == text
    assert rest == ""
