"""How ``/v1/completions`` and ``/v1/chat/completions`` write a choice."""

from __future__ import annotations

from typing import Any

from chairlift.outputs import TokenLogprob
from chairlift.server.answer_spec import AnswerSpec, ChoicePiece
from chairlift.server.logprobs_format import CompletionLogprobsWriter, TokenTexts, chat_logprobs


class CompletionStyle:
    """Text completions: ``text``, and logprobs as parallel lists."""

    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, spec: AnswerSpec, texts: TokenTexts) -> None:
        self._has_logprobs = spec.has_logprobs
        self._texts = texts
        self._writers: dict[int, CompletionLogprobsWriter] = {}

    def fast_piece(self, index: int) -> tuple[bytes, bytes]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`."""
        return b'{"index":%d,"text":' % index, b',"logprobs":null,"finish_reason":null}'

    def piece(self, piece: ChoicePiece, *, is_first: bool) -> dict[str, Any]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`."""
        return {
            "text": (piece.echoed_text or "") + piece.text,
            "logprobs": self._logprobs(piece) if self._has_logprobs else None,
        }

    def whole(self, piece: ChoicePiece) -> dict[str, Any]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`."""
        return self.piece(piece, is_first=True)

    def _logprobs(self, piece: ChoicePiece) -> dict[str, Any]:
        writer = self._writers.setdefault(piece.index, CompletionLogprobsWriter(self._texts))
        token_ids = list(piece.token_ids)
        entries: list[TokenLogprob | None] = list(piece.logprobs or ())
        if piece.echoed_logprobs is not None:
            token_ids = [*piece.output.prompt_token_ids, *token_ids]
            entries = [*piece.echoed_logprobs, *entries]
        return writer.write(token_ids, entries)


class ChatStyle:
    """Chat completions: ``message`` or ``delta``, and logprobs as one list of tokens."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, spec: AnswerSpec, texts: TokenTexts) -> None:
        self._has_logprobs = spec.has_logprobs
        self._texts = texts

    def fast_piece(self, index: int) -> tuple[bytes, bytes]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`."""
        return (
            b'{"index":%d,"delta":{"content":' % index,
            b'},"logprobs":null,"finish_reason":null}',
        )

    def piece(self, piece: ChoicePiece, *, is_first: bool) -> dict[str, Any]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`.

        The role comes with the first text: a chunk for it alone would reach clients long before
        the first token and pass for it.
        """
        delta = {"role": "assistant"} if is_first else {}
        return {"delta": delta | {"content": piece.text}, "logprobs": self._logprobs(piece)}

    def whole(self, piece: ChoicePiece) -> dict[str, Any]:
        """See :class:`~chairlift.server.answer_spec.ChoiceStyle`."""
        return {
            "message": {"role": "assistant", "content": piece.text},
            "logprobs": self._logprobs(piece),
        }

    def _logprobs(self, piece: ChoicePiece) -> dict[str, Any] | None:
        return chat_logprobs(self._texts, piece.logprobs or ()) if self._has_logprobs else None
