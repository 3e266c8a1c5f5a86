"""Logprobs as the API writes them: finite numbers, and tokens as text that loses nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chairlift.outputs import TokenLogprob
from chairlift.server.engine_client import TokenizerClient

# JSON has no infinity. Clients of OpenAI's API know this number for "practically impossible".
LOGPROB_FLOOR = -9999.0

_UTF8_CONTINUATION = 0b10


def finite(logprob: float) -> float:
    """``logprob``, or the floor for what is below it (minus infinity)."""
    return max(logprob, LOGPROB_FLOOR)


class TokenTexts:
    """Texts of single tokens, remembered: at most one entry per id of the vocabulary."""

    def __init__(self, tokenizer: TokenizerClient) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, bytes]] = {}

    def text(self, token_id: int) -> str:
        r"""The token's text; ``bytes:\xf0\x9f`` where it is only part of a character."""
        return self._lookup(token_id)[0]

    def data(self, token_id: int) -> bytes:
        """The token's bytes."""
        return self._lookup(token_id)[1]

    def _lookup(self, token_id: int) -> tuple[str, bytes]:
        known = self._known.get(token_id)
        if known is None:
            data = self._tokenizer.token_bytes(token_id)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
            known = self._known[token_id] = text, data
        return known


class CompletionLogprobsWriter:
    """Logprobs of one choice of a completion, piece after piece.

    ``text_offset`` counts characters from the start of the choice's text (the prompt included
    with ``echo``) to the token's first byte. A token that only continues a character has the
    offset of what follows that character.
    """

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._offset = 0

    def write(
        self, token_ids: Sequence[int], logprobs: Iterable[TokenLogprob | None]
    ) -> dict[str, Any]:
        """The next tokens; a logprob of ``None`` (a prompt's first token) becomes null."""
        tokens: list[str] = []
        token_logprobs: list[float | None] = []
        top_logprobs: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token_id, entry in zip(token_ids, logprobs, strict=True):
            tokens.append(self._texts.text(token_id))
            offsets.append(self._offset)
            self._offset += _num_characters(self._texts.data(token_id))
            token_logprobs.append(None if entry is None else finite(entry.logprob))
            top_logprobs.append(None if entry is None else self._top(entry))
        return {
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        top: dict[str, float] = {}
        for token_id, logprob in entry.top:
            top.setdefault(self._texts.text(token_id), finite(logprob))
        # Always there, and the very number of token_logprobs: clients compare for equality.
        top[self._texts.text(entry.token_id)] = finite(entry.logprob)
        return top


def _num_characters(data: bytes) -> int:
    return sum(byte >> 6 != _UTF8_CONTINUATION for byte in data)


def chat_logprobs(texts: TokenTexts, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Logprobs in the form of chat completions."""
    return {
        "content": [
            _chat_token(texts, entry.token_id, entry.logprob)
            | {"top_logprobs": [_chat_token(texts, *alternative) for alternative in entry.top]}
            for entry in logprobs
        ]
    }


def _chat_token(texts: TokenTexts, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": texts.text(token_id),
        "logprob": finite(logprob),
        "bytes": list(texts.data(token_id)),
    }


def prompt_logprobs(
    texts: TokenTexts, logprobs: Iterable[TokenLogprob | None]
) -> list[dict[str, dict[str, Any]] | None]:
    """Prompt logprobs as vLLM writes them: per position, by token id."""
    return [None if entry is None else _by_token_id(texts, entry) for entry in logprobs]


def _by_token_id(texts: TokenTexts, entry: TokenLogprob) -> dict[str, dict[str, Any]]:
    ranked = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top, 1)]
    ranked.append((entry.token_id, entry.logprob, entry.rank))
    return {
        str(token_id): {
            "logprob": finite(logprob),
            "rank": rank,
            "decoded_token": texts.text(token_id),
        }
        for token_id, logprob, rank in ranked
    }
