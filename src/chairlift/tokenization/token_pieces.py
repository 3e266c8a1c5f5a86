"""What the text of one token stands for in bytes, and bytes back to text.

Two kinds of vocabulary are read without help from the ``tokenizers`` library, because their texts
are simply their tokens' bytes joined: byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece
(Llama 2, Mistral). Tokens of any other kind have to be decoded together.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_CHARACTER_BYTES = 4
"""Longest UTF-8 sequence of one character."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "▁"


class PieceKind(StrEnum):
    """How a vocabulary spells bytes."""

    BYTE_LEVEL = "byte_level"
    SENTENCEPIECE = "sentencepiece"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PieceRule:
    """How to read a vocabulary's tokens.

    Attributes:
        strips_leading_space: One space at the start of the whole text is dropped: the one that
            SentencePiece put there before encoding.
    """

    kind: PieceKind
    strips_leading_space: bool = False


def _byte_of_symbol() -> dict[str, int]:
    """Byte of each of the 256 printable characters that GPT-2's byte-level BPE writes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    symbols = {chr(byte): byte for byte in printable}
    return symbols | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_SYMBOL: Mapping[str, int] = _byte_of_symbol()


def piece_rule(decoder: Mapping[str, Any] | None) -> PieceRule:
    """Tell the kind of a vocabulary from the ``decoder`` of its ``tokenizer.json``."""
    steps = _steps(decoder)
    names = [step.get("type") for step in steps]
    if names and all(name in ("ByteLevel", "Fuse") for name in names) and "ByteLevel" in names:
        return PieceRule(PieceKind.BYTE_LEVEL)
    if names[:3] == ["Replace", "ByteFallback", "Fuse"] and _is_space_mark(steps[0]):
        if len(steps) == 3:
            return PieceRule(PieceKind.SENTENCEPIECE)
        if len(steps) == 4 and _is_leading_space(steps[3]):
            return PieceRule(PieceKind.SENTENCEPIECE, strips_leading_space=True)
    return PieceRule(PieceKind.OTHER)


def piece_bytes(kind: PieceKind, text: str, *, is_added: bool) -> bytes:
    """Bytes that a token stands for.

    Args:
        text: The token as the vocabulary spells it.
        is_added: It is matched in text as it is (special tokens, user-defined ones), not built
            from bytes.
    """
    if kind is PieceKind.SENTENCEPIECE:
        if match := _BYTE_TOKEN.fullmatch(text):
            return bytes([int(match[1], 16)])
        return text.replace(_SPACE_MARK, " ").encode()
    if kind is PieceKind.BYTE_LEVEL and not is_added:
        try:
            return bytes([BYTE_OF_SYMBOL[symbol] for symbol in text])
        except KeyError:
            return text.encode()
    return text.encode()


def decode_bytes(kind: PieceKind, data: bytes, *, final: bool) -> tuple[str, int]:
    """Decode UTF-8 as far as it is certain; return the text and how many bytes it took.

    Bytes that cannot be part of any character become U+FFFD: one for each attempt at a character
    in a byte-level vocabulary, one for each byte in a SentencePiece one, as in the ``tokenizers``
    library. The beginning of a character at the end is left over, unless ``final``.
    """
    if kind is not PieceKind.SENTENCEPIECE:
        return codecs.utf_8_decode(data, "replace", final)
    parts: list[str] = []
    start = 0
    while True:
        try:
            text, length = codecs.utf_8_decode(data[start:], "strict", final)
        except UnicodeDecodeError as error:
            parts.append(data[start : start + error.start].decode())
            parts.append("�" * (error.end - error.start))
            start += error.end
        else:
            return "".join([*parts, text]), start + length


def _steps(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return list(decoder["decoders"])
    return [decoder]


def _is_space_mark(step: Mapping[str, Any]) -> bool:
    return step.get("pattern") == {"String": _SPACE_MARK} and step.get("content") == " "


def _is_leading_space(step: Mapping[str, Any]) -> bool:
    expected = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {key: step.get(key) for key in expected} == expected
