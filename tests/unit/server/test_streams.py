"""What streams hold; how they begin and end is in ``test_connections``."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine, say
from tests.unit.server.reading import chunks_of, events_of, texts_of

from chairlift.errors import RequestFailedError
from chairlift.outputs import ChoiceOutput, FinishReason
from chairlift.server.responses import ChatCompletionChunk, CompletionResponse

COMPLETION = ("/v1/completions", {"prompt": "hi"})
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
BOTH = pytest.mark.parametrize(("path", "base"), [COMPLETION, CHAT])

TRICKY = 'He said: "\\n"\n\ttab \u2028 \x7f 雪 \N{GRINNING FACE} data: [DONE]'


async def stream(
    client: httpx.AsyncClient, path: str, base: dict[str, Any], **fields: Any
) -> list[dict[str, Any]]:
    answer = await client.post(path, json=base | {"stream": True} | fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = chunks_of(answer.text)
    schema = CompletionResponse if path == COMPLETION[0] else ChatCompletionChunk
    for chunk in chunks:
        schema.model_validate(chunk)
    return chunks


@BOTH
async def test_pieces_join_to_the_whole_text(
    client: httpx.AsyncClient, engine: FakeEngine, path: str, base: dict[str, Any]
) -> None:
    pieces = [
        [ChoiceOutput(0, piece, (1,), None, FinishReason.STOP if i == len(TRICKY) - 1 else None)]
        for i, piece in enumerate(TRICKY)
    ]
    engine.script = lambda request: pieces
    assert texts_of(await stream(client, path, base)) == {0: TRICKY}


@BOTH
async def test_all_chunks_carry_the_same_id_model_and_time(
    client: httpx.AsyncClient, path: str, base: dict[str, Any]
) -> None:
    chunks = await stream(client, path, base, stream_options={"include_usage": True})
    assert len({(chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks}) == 1


async def test_the_first_chunk_of_a_chat_brings_role_and_text_and_no_other_does(
    client: httpx.AsyncClient,
) -> None:
    """vllm#15106: a chunk with the role alone passes for the first token."""
    chunks = await stream(client, *CHAT)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "H"}
    assert all("role" not in delta for delta in deltas[1:])


@BOTH
@pytest.mark.parametrize(
    "options", [{}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}]
)
async def test_without_being_asked_no_chunk_has_a_usage(
    client: httpx.AsyncClient, path: str, base: dict[str, Any], options: dict[str, Any]
) -> None:
    chunks = await stream(client, path, base, **options)
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


@BOTH
async def test_usage_comes_once_in_a_last_chunk_without_choices(
    client: httpx.AsyncClient, path: str, base: dict[str, Any]
) -> None:
    chunks = await stream(client, path, base, stream_options={"include_usage": True})
    *others, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)


@BOTH
async def test_usage_can_come_with_every_chunk(
    client: httpx.AsyncClient, path: str, base: dict[str, Any]
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await stream(client, path, base, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [1, 2, 3, 4, 5, 5]


@BOTH
async def test_each_choice_has_exactly_one_finish_reason(
    client: httpx.AsyncClient, path: str, base: dict[str, Any]
) -> None:
    """sglang#8417"""
    chunks = await stream(client, path, base, n=3)
    reasons = [
        (choice["index"], choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"]
    ]
    assert sorted(reasons) == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert texts_of(chunks) == {0: "Hello", 1: "Hello", 2: "Hello"}


async def test_several_prompts_stream_into_one_answer(client: httpx.AsyncClient) -> None:
    fields = {"prompt": ["a", "b"], "n": 2, "echo": True, "max_tokens": 3}
    chunks = await stream(
        client, COMPLETION[0], fields, stream_options={"include_usage": True}, logprobs=1
    )
    assert texts_of(chunks) == {0: "aHel", 1: "aHel", 2: "bHel", 3: "bHel"}
    assert chunks[-1]["usage"]["completion_tokens"] == 12


async def test_streamed_logprobs_join_to_the_whole_ones(client: httpx.AsyncClient) -> None:
    fields = {"prompt": "ab", "echo": True, "logprobs": 2}
    whole = (await client.post("/v1/completions", json=fields)).json()["choices"][0]["logprobs"]
    chunks = await stream(client, COMPLETION[0], fields)
    pieces = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    joined = {key: list(itertools.chain(*(piece[key] for piece in pieces))) for key in whole}
    assert joined == whole


@BOTH
async def test_token_ids_come_with_each_chunk_on_request(
    client: httpx.AsyncClient, path: str, base: dict[str, Any]
) -> None:
    chunks = await stream(client, path, base, return_token_ids=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert bytes(itertools.chain(*(choice["token_ids"] for choice in choices))) == b"Hello"
    assert "prompt_token_ids" in choices[0]
    assert all("prompt_token_ids" not in choice for choice in choices[1:])


async def test_a_piece_without_text_is_shown_only_if_it_is_the_first_or_the_last(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    texts = ["", "", "a", "", ""]
    pieces = [
        [ChoiceOutput(0, text, (i,), None, FinishReason.LENGTH if i == 4 else None)]
        for i, text in enumerate(texts)
    ]
    engine.script = lambda request: pieces
    chunks = await stream(client, *CHAT)
    shown = [
        (c["choices"][0]["delta"]["content"], c["choices"][0]["finish_reason"]) for c in chunks
    ]
    assert shown == [("", None), ("a", None), ("", "length")]


@BOTH
@pytest.mark.parametrize("failure", [RequestFailedError("NaN logits"), ValueError("secret")])
async def test_an_error_in_the_middle_is_an_event_and_the_stream_still_ends(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    path: str,
    base: dict[str, Any],
    failure: Exception,
) -> None:
    """vllm#52852"""
    engine.failure, engine.fail_after = failure, 2
    answer = await client.post(path, json=base | {"stream": True})
    *chunks, error, done = events_of(answer.text)
    assert texts_of(chunks) == {0: "He"}
    assert error["error"]["type"] == "server_error"
    assert "secret" not in error["error"]["message"]
    assert done == "[DONE]"


@BOTH
async def test_an_error_before_the_first_token_is_a_status(
    client: httpx.AsyncClient, engine: FakeEngine, path: str, base: dict[str, Any]
) -> None:
    engine.failure = RequestFailedError("NaN logits")
    answer = await client.post(path, json=base | {"stream": True})
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "NaN logits"


@BOTH
async def test_a_choice_that_the_engine_gave_up_ends_in_an_error(
    client: httpx.AsyncClient, engine: FakeEngine, path: str, base: dict[str, Any]
) -> None:
    engine.script = lambda request: [
        [ChoiceOutput(0, "a", (97,))],
        [ChoiceOutput(0, "", (), None, FinishReason.ABORT)],
    ]
    answer = await client.post(path, json=base | {"stream": True})
    *chunks, error, done = events_of(answer.text)
    assert (texts_of(chunks), done) == ({0: "a"}, "[DONE]")
    assert error["error"]["code"] == "request_failed"


async def test_when_one_of_several_prompts_fails_the_others_are_aborted(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    healthy = say("Hello")

    def script(request: Any) -> list[list[ChoiceOutput]]:
        if request.prompt_token_ids == (ord("b"),):
            raise RequestFailedError("b is bad")
        return healthy(request)

    engine.script = script
    engine.first_gate.clear()
    answer = await client.post("/v1/completions", json={"prompt": ["a", "b"]})
    assert answer.status_code == 500
    assert (engine.running, engine.num_aborted) == (0, 1)
