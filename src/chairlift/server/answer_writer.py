"""Writes answers as JSON: whole ones, and streams piece by piece.

A streamed token costs little here: everything but its escaped text was made when the stream began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from json.encoder import encode_basestring
from typing import Any

from pydantic_core import to_json

from chairlift.outputs import ChoiceOutput, RequestOutput
from chairlift.server.answer_spec import AnswerSpec, ChoicePiece, ChoiceStyle, usage
from chairlift.server.logprobs_format import TokenTexts, prompt_logprobs

EVENT_START = b"data: "
EVENT_END = b"\n\n"
DONE_EVENT = b"data: [DONE]\n\n"


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return EVENT_START + to_json(content) + EVENT_END


class AnswerWriter:
    """Writes one answer.

    Args:
        spec: What the answer holds.
        style: How the endpoint writes choices.
    """

    def __init__(self, spec: AnswerSpec, style: ChoiceStyle, texts: TokenTexts) -> None:
        self._spec = spec
        self._style = style
        self._texts = texts
        self._latest: dict[int, RequestOutput] = {}
        self._started: set[int] = set()
        self._plain: dict[int, tuple[bytes, bytes]] = {}
        self._is_plain = not (spec.has_logprobs or spec.has_token_ids or spec.continuous_usage)
        head = self._head(style.chunk_object)
        self._chunk_start = EVENT_START + to_json(head)[:-1] + b',"choices":['
        usage_end = b'],"usage":null}' if spec.include_usage else b"]}"
        self._chunk_end = usage_end + EVENT_END

    def chunks(self, prompt_index: int, output: RequestOutput) -> bytes:
        """The events for what is new of a prompt's choices; empty if there is nothing to show."""
        self._latest[prompt_index] = output
        first_index = prompt_index * self._spec.num_choices
        written = [
            self._chunk(prompt_index, first_index + choice.index, choice, output)
            for choice in output.choices
        ]
        return b"".join(written)

    def end(self) -> bytes:
        """The last events: the usage, if asked for, and the end mark."""
        if not self._spec.include_usage:
            return DONE_EVENT
        head = self._head(self._style.chunk_object)
        return event(head | {"choices": [], "usage": self._usage()}) + DONE_EVENT

    def whole(self, outputs: Sequence[RequestOutput]) -> bytes:
        """The answer in one piece, out of the whole output of each prompt."""
        self._latest = dict(enumerate(outputs))
        choices = []
        for prompt_index, output in enumerate(outputs):
            for choice in output.choices:
                index = prompt_index * self._spec.num_choices + choice.index
                piece = self._piece(prompt_index, index, choice, output, is_first=True)
                choices.append(self._common(piece, is_first=True) | self._style.whole(piece))
        head = self._head(self._style.whole_object)
        return to_json(head | {"choices": choices, "usage": self._usage()})

    def _chunk(
        self, prompt_index: int, index: int, choice: ChoiceOutput, output: RequestOutput
    ) -> bytes:
        plain = self._plain.get(index)
        if plain is not None and choice.finish_reason is None:
            if not choice.text:
                return b""
            start, end = plain
            return start + encode_basestring(choice.text).encode() + end
        is_first = index not in self._started
        if is_first:
            self._started.add(index)
            if self._is_plain:
                start, end = self._style.fast_piece(index)
                self._plain[index] = self._chunk_start + start, end + self._chunk_end
        piece = self._piece(prompt_index, index, choice, output, is_first=is_first)
        return self._detailed_chunk(piece, is_first=is_first)

    def _detailed_chunk(self, piece: ChoicePiece, *, is_first: bool) -> bytes:
        content = self._common(piece, is_first=is_first)
        content |= self._style.piece(piece, is_first=is_first)
        end = self._chunk_end
        if self._spec.continuous_usage:
            end = b'],"usage":' + to_json(self._usage()) + b"}" + EVENT_END
        return self._chunk_start + to_json(content) + end

    def _piece(
        self,
        prompt_index: int,
        index: int,
        choice: ChoiceOutput,
        output: RequestOutput,
        *,
        is_first: bool,
    ) -> ChoicePiece:
        piece = ChoicePiece(
            index=index,
            text=choice.text,
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason and choice.finish_reason.value,
            stop_reason=choice.stop_reason,
            output=output,
        )
        if is_first and self._spec.echoed_texts:
            piece.echoed_text = self._spec.echoed_texts[prompt_index]
            piece.echoed_logprobs = output.prompt_logprobs
        return piece

    def _common(self, piece: ChoicePiece, *, is_first: bool) -> dict[str, Any]:
        content: dict[str, Any] = {"index": piece.index, "finish_reason": piece.finish_reason}
        if piece.finish_reason is not None:
            content |= {"stop_reason": piece.stop_reason, "seed": piece.output.seed}
        if self._spec.has_token_ids:
            content["token_ids"] = list(piece.token_ids)
            if is_first:
                content["prompt_token_ids"] = list(piece.output.prompt_token_ids)
        if self._spec.has_prompt_logprobs and piece.output.prompt_logprobs is not None:
            content["prompt_logprobs"] = prompt_logprobs(self._texts, piece.output.prompt_logprobs)
        return content

    def _head(self, object_name: str) -> dict[str, Any]:
        spec = self._spec
        return {
            "id": spec.response_id,
            "object": object_name,
            "created": spec.created,
            "model": spec.model,
        }

    def _usage(self) -> dict[str, Any]:
        return usage(self._latest.values())


def joined(pieces: Sequence[RequestOutput]) -> RequestOutput:
    """One whole output out of all the pieces of a request."""
    if len(pieces) == 1:
        return pieces[0]
    choices: dict[int, ChoiceOutput] = {}
    for piece in pieces:
        for choice in piece.choices:
            before = choices.get(choice.index)
            choices[choice.index] = choice if before is None else _appended(before, choice)
    scores = [piece.prompt_logprobs for piece in pieces if piece.prompt_logprobs is not None]
    return replace(
        pieces[-1],
        choices=tuple(choices[index] for index in sorted(choices)),
        prompt_logprobs=scores[0] if scores else None,
    )


def _appended(first: ChoiceOutput, second: ChoiceOutput) -> ChoiceOutput:
    logprobs = None
    if first.logprobs is not None and second.logprobs is not None:
        logprobs = first.logprobs + second.logprobs
    return replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=logprobs,
    )
