"""Logprobs: their two forms, echo, and what is no number in JSON."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from tests.unit.server.fake_engine import ByteTokenizer, FakeEngine
from tests.unit.server.test_answers import chat, complete

from chairlift.outputs import TokenLogprob
from chairlift.server.logprobs_format import (
    LOGPROB_FLOOR,
    CompletionLogprobsWriter,
    TokenTexts,
    chat_logprobs,
    prompt_logprobs,
)


@pytest.fixture
def texts() -> TokenTexts:
    return TokenTexts(ByteTokenizer())


async def test_echo_puts_the_prompt_before_the_text(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt=[104, 105], echo=True, max_tokens=1)
    assert answer["choices"][0]["text"] == "hiH"
    assert answer["choices"][0]["logprobs"] is None


async def test_echoed_logprobs_cover_prompt_and_output_and_begin_with_null(
    client: httpx.AsyncClient,
) -> None:
    """llama.cpp#27174: without the prompt's part, harnesses score at chance."""
    answer = await complete(client, prompt="abc", echo=True, max_tokens=1, logprobs=1)
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["a", "b", "c", "H"],
        "token_logprobs": [None, -0.25, -0.25, -0.25],
        "top_logprobs": [None, {"b": -0.25}, {"c": -0.25}, {"H": -0.25}],
        "text_offset": [0, 1, 2, 3],
    }


async def test_a_prompt_can_be_scored_without_generating(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    """vllm#6521: echo, logprobs and max_tokens 0."""
    answer = await complete(client, prompt="abc", echo=True, max_tokens=0, logprobs=0)
    assert answer["choices"][0]["text"] == "abc"
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.25, -0.25]
    assert engine.requests[0].sampling_params.max_tokens == 0


async def test_echo_alone_can_generate_nothing(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt="abc", echo=True, max_tokens=0)
    assert answer["choices"][0]["text"] == "abc"
    assert answer["choices"][0]["logprobs"] is None


async def test_prompt_logprobs_come_by_token_id(client: httpx.AsyncClient) -> None:
    for answer in (
        await complete(client, prompt="ab", prompt_logprobs=2),
        await chat(client, prompt_logprobs=2),
    ):
        first, second, *_ = answer["choices"][0]["prompt_logprobs"]
        assert first is None
        assert {key: next(iter(second.values()))[key] for key in ("logprob", "rank")} == {
            "logprob": -0.25,
            "rank": 1,
        }


async def test_impossible_tokens_have_a_finite_logprob(client: httpx.AsyncClient) -> None:
    """vllm#10234: minus infinity is not JSON."""
    answer = await chat(client, logprobs=True, top_logprobs=3, max_tokens=1)
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert [item["logprob"] for item in top] == [-0.25, -1.5, LOGPROB_FLOOR]


async def test_chat_logprobs_have_exactly_the_alternatives_asked_for(
    client: httpx.AsyncClient,
) -> None:
    for asked, expected in ((None, 0), (0, 0), (2, 2)):
        answer = await chat(client, logprobs=True, top_logprobs=asked, max_tokens=2)
        content = answer["choices"][0]["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in content] == [expected, expected]


def test_the_chosen_token_is_among_the_alternatives_with_the_same_number(
    texts: TokenTexts,
) -> None:
    chosen = TokenLogprob(ord("z"), -7.3, 9, ((ord("a"), -0.1), (ord("b"), -0.2)))
    written = CompletionLogprobsWriter(texts).write([ord("z")], [chosen])
    assert written["top_logprobs"] == [{"a": -0.1, "b": -0.2, "z": -7.3}]
    assert written["token_logprobs"] == [-7.3]


def test_parts_of_a_character_are_written_as_their_bytes(texts: TokenTexts) -> None:
    snow = "雪!".encode()
    entries = [TokenLogprob(token, -1.0, 1, ()) for token in snow]
    written = CompletionLogprobsWriter(texts).write(list(snow), entries)
    assert written["tokens"] == ["bytes:\\xe9", "bytes:\\x9b", "bytes:\\xaa", "!"]
    assert written["text_offset"] == [0, 1, 1, 1]
    content: list[dict[str, Any]] = chat_logprobs(texts, entries)["content"]
    assert [token["bytes"] for token in content] == [[0xE9], [0x9B], [0xAA], [0x21]]


def test_text_offsets_go_on_from_piece_to_piece(texts: TokenTexts) -> None:
    writer = CompletionLogprobsWriter(texts)
    entry = TokenLogprob(97, -1.0, 1, ())
    offsets = [writer.write([97] * n, [entry] * n)["text_offset"] for n in (2, 1)]
    assert offsets == [[0, 1], [2]]


def test_prompt_logprobs_keep_the_rank_of_an_unlikely_token(texts: TokenTexts) -> None:
    entry = TokenLogprob(98, -math.inf, 300, ((97, -0.5),))
    assert prompt_logprobs(texts, [None, entry]) == [
        None,
        {
            "97": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": LOGPROB_FLOOR, "rank": 300, "decoded_token": "b"},
        },
    ]
