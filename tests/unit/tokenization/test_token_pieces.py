"""Bytes of tokens, and bytes to text, against the decoders of the tokenizers library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from chairlift.tokenization.token_pieces import (
    BYTE_OF_SYMBOL,
    PieceKind,
    PieceRule,
    decode_bytes,
    piece_bytes,
    piece_rule,
)

SPM_STEPS = (decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse())
SPM = PieceRule(PieceKind.SENTENCEPIECE)
OTHER = PieceRule(PieceKind.OTHER)


def rule_of(decoder: Any) -> PieceRule:
    return piece_rule(json.loads(decoder.__getstate__()))


@pytest.mark.parametrize(
    ("decoder", "rule"),
    [
        (decoders.ByteLevel(), PieceRule(PieceKind.BYTE_LEVEL)),
        (decoders.Sequence([decoders.ByteLevel()]), PieceRule(PieceKind.BYTE_LEVEL)),
        (decoders.Sequence([*SPM_STEPS]), SPM),
        (
            decoders.Sequence([*SPM_STEPS, decoders.Strip(" ", 1, 0)]),
            PieceRule(PieceKind.SENTENCEPIECE, strips_leading_space=True),
        ),
        (decoders.Sequence([*SPM_STEPS, decoders.Strip(" ", 2, 0)]), OTHER),
        (decoders.Sequence([*SPM_STEPS, decoders.Strip("x", 1, 0)]), OTHER),
        (decoders.Sequence([decoders.Replace("_", " "), *SPM_STEPS[1:]]), OTHER),
        (decoders.Sequence([*SPM_STEPS, decoders.ByteLevel()]), OTHER),
        (decoders.Metaspace(), OTHER),
        (decoders.WordPiece(), OTHER),
    ],
)
def test_the_kind_of_a_vocabulary_shows_in_its_decoder(decoder: Any, rule: PieceRule) -> None:
    assert rule_of(decoder) == rule


def test_a_vocabulary_without_a_decoder_is_of_another_kind() -> None:
    assert piece_rule(None) == OTHER


def test_byte_level_symbols_stand_for_all_bytes() -> None:
    assert sorted(BYTE_OF_SYMBOL.values()) == list(range(256))
    assert BYTE_OF_SYMBOL["Ġ"] == ord(" ")
    assert BYTE_OF_SYMBOL["Ċ"] == ord("\n")


@pytest.mark.parametrize(
    ("kind", "text", "is_added", "data"),
    [
        (PieceKind.BYTE_LEVEL, "Ġthe", False, b" the"),
        (PieceKind.BYTE_LEVEL, "éĢ", False, b"\xe9\x80"),
        (PieceKind.BYTE_LEVEL, "éĢ", True, "éĢ".encode()),
        (PieceKind.BYTE_LEVEL, "a 中", False, "a 中".encode()),
        (PieceKind.SENTENCEPIECE, "▁the", False, b" the"),
        (PieceKind.SENTENCEPIECE, "<0x0A>", False, b"\n"),
        (PieceKind.SENTENCEPIECE, "<0xfF>", False, b"\xff"),
        (PieceKind.SENTENCEPIECE, "<0x0A> ", False, b"<0x0A> "),
        (PieceKind.SENTENCEPIECE, "▁<PRE>", True, b" <PRE>"),
        (PieceKind.OTHER, "▁the", False, "▁the".encode()),
    ],
)
def test_a_tokens_bytes(kind: PieceKind, text: str, is_added: bool, data: bytes) -> None:
    assert piece_bytes(kind, text, is_added=is_added) == data


@settings(deadline=None)
@given(st.binary(max_size=12))
def test_byte_level_text_equals_the_librarys(data: bytes) -> None:
    symbols = {byte: symbol for symbol, byte in BYTE_OF_SYMBOL.items()}
    expected = decoders.ByteLevel().decode(["".join(symbols[byte] for byte in data)])
    assert decode_bytes(PieceKind.BYTE_LEVEL, data, final=True) == (expected, len(data))


@settings(deadline=None)
@given(st.binary(max_size=12))
def test_sentencepiece_text_is_valid_text_and_one_mark_for_each_other_byte(data: bytes) -> None:
    text, used = decode_bytes(PieceKind.SENTENCEPIECE, data, final=True)
    assert used == len(data)
    assert len(text.replace("�", "").encode()) + text.count("�") == len(data)


@pytest.mark.parametrize("data", [b"\xe4\xbd", b"\xf0\x9f\x8e", b"\xff", b"\xe4\xbd\xa0\n"])
def test_sentencepiece_text_of_one_broken_or_of_whole_characters_equals_the_librarys(
    data: bytes,
) -> None:
    expected = decoders.Sequence([*SPM_STEPS]).decode([f"<0x{byte:02X}>" for byte in data])
    assert decode_bytes(PieceKind.SENTENCEPIECE, data, final=True)[0] == expected


@pytest.mark.parametrize("kind", [PieceKind.BYTE_LEVEL, PieceKind.SENTENCEPIECE])
@pytest.mark.parametrize(
    ("data", "text", "used"),
    [
        (b"ab\xf0\x9f", "ab", 2),
        (b"\xe4\xbd\xa0\xe5", "你", 3),
        (b"\xe4a\xe5\xa5", "�a", 2),
        (b"\xff", "�", 1),
        (b"", "", 0),
    ],
)
def test_the_start_of_a_character_waits_for_its_end(
    kind: PieceKind, data: bytes, text: str, used: int
) -> None:
    assert decode_bytes(kind, data, final=False) == (text, used)
