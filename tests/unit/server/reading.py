"""Reads streamed answers as clients do."""

from __future__ import annotations

import json
from typing import Any


def events_of(text: str) -> list[Any]:
    """Contents of the events of a stream; ``"[DONE]"`` for the end mark."""
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, _, content = block.partition(": ")
        if name != "data" or "\n" in content:
            raise AssertionError(f"not one data line: {block!r}")
        events.append(content if content == "[DONE]" else json.loads(content))
    return events


def chunks_of(text: str) -> list[dict[str, Any]]:
    """All events before the end mark, which must be the last."""
    *chunks, last = events_of(text)
    if last != "[DONE]":
        raise AssertionError(f"the stream ends with {last}")
    return chunks


def texts_of(chunks: list[dict[str, Any]]) -> dict[int, str]:
    """Joined text of each choice of a stream."""
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            piece = choice["delta"]["content"] if "delta" in choice else choice["text"]
            texts[choice["index"]] = texts.get(choice["index"], "") + piece
    return texts
