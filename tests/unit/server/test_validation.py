"""Each wrong field costs one 400 that names it, and nothing reaches the engine."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

USER = [{"role": "user", "content": "hi"}]


WRONG_FOR_BOTH: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -3}, "temperature"),
    ({"temperature": 1e999}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"priority": 1001}, "priority"),
    ({"priority": -1001}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": "high"}, "priority"),
    ({"top_p": 7}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 100_000_000}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"seed": 10**20}, "seed"),
    ({"seed": "100"}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 5_000_000}, "n"),
    ({"n": True}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": "16"}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"99999999": -100}}, "logit_bias"),
    ({"logit_bias": {"AI": -100}}, "logit_bias"),
    ({"logit_bias": {"-1": -100}}, "logit_bias"),
    ({"logit_bias": {"5": 1000}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"stop": ""}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop[0]"),
    ({"stop_token_ids": [9_999_999]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids[0]"),
    ({"prompt_logprobs": 1_000_000}, "prompt_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"nope": 1}}, "stream_options.nope"),
    ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ({"request_id": "a b"}, "request_id"),
    ({"request_id": "a" * 129}, "request_id"),
    ({"no_such_field": 1}, "no_such_field"),
    ({"bootstrap_host": "2.2.2.2"}, "bootstrap_host"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"guided_regex": "("}, "guided_regex"),
    ({"best_of": 3}, "best_of"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"model": 5}, "model"),
]
WRONG_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [[1], []]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [1, True]}, "prompt"),
    ({"prompt": [1.0]}, "prompt"),
    ({"prompt": [[1], "a"]}, "prompt"),
    ({"prompt": {"text": "a"}}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": [99_999_999]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": "a", "logprobs": 1_000_000}, "logprobs"),
    ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "logprobs": -1}, "logprobs"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": "a", "messages": USER}, "messages"),
    ({}, "prompt"),
]
WRONG_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": "refused by the template"}]}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
        "messages[0].tool_calls",
    ),
    ({"messages": [*USER, {"role": "user", "content": "a", "x": 1}]}, "messages[1].x"),
    ({"messages": USER, "top_logprobs": 2}, "top_logprobs"),
    ({"messages": USER, "logprobs": True, "top_logprobs": 1_000_000}, "top_logprobs"),
    ({"messages": USER, "logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"messages": USER, "logprobs": 2}, "logprobs"),
    ({"messages": USER, "max_completion_tokens": 0}, "max_tokens"),
    ({"messages": USER, "max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
    ({"messages": USER, "modalities": ["audio"]}, "modalities"),
    ({"messages": USER, "functions": [{}]}, "functions"),
    ({"messages": USER, "chat_template": "{{ x }}"}, "chat_template"),
    ({}, "messages"),
]
ALL_WRONG = (
    [("/v1/completions", {"prompt": "hi"} | fields, param) for fields, param in WRONG_FOR_BOTH]
    + [("/v1/chat/completions", {"messages": USER} | f, param) for f, param in WRONG_FOR_BOTH]
    + [("/v1/completions", fields, param) for fields, param in WRONG_COMPLETIONS]
    + [("/v1/chat/completions", fields, param) for fields, param in WRONG_CHATS]
)


@pytest.mark.parametrize(("path", "body", "param"), ALL_WRONG)
async def test_a_wrong_field_is_answered_with_a_400_that_names_it(
    client: httpx.AsyncClient, engine: FakeEngine, path: str, body: dict[str, Any], param: str
) -> None:
    content = _json_with_overflow(body)
    answer = await client.post(path, content=content)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert error["type"] == "invalid_request_error"
    assert param in error["message"] or param == "messages"
    assert answer.headers["x-should-retry"] == "false"
    assert engine.requests == []


def _json_with_overflow(body: dict[str, Any]) -> str:
    """JSON in which infinity is the number 1e999, which is valid JSON."""
    import json

    return json.dumps(body).replace("Infinity", "1e999")


HARMLESS: list[dict[str, Any]] = [
    {"logprobs": None, "stop": None, "seed": None, "logit_bias": None, "stream_options": None},
    {"user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
    {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "best_of": 1},
    {"temperature": 1, "top_p": 1, "presence_penalty": 0},
]


@pytest.mark.parametrize("fields", HARMLESS)
@pytest.mark.parametrize(
    ("path", "base"),
    [("/v1/completions", {"prompt": "hi"}), ("/v1/chat/completions", {"messages": USER})],
)
async def test_fields_that_ask_for_nothing_are_accepted(
    client: httpx.AsyncClient, path: str, base: dict[str, Any], fields: dict[str, Any]
) -> None:
    answer = await client.post(path, json=base | fields)
    assert answer.status_code == 200, answer.text


async def test_messages_that_clients_send_back_with_the_history_are_accepted(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    history = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": "c",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "tool_calls": None,
            "function_call": None,
        },
        {"role": "user", "content": "d", "name": "Al"},
    ]
    answer = await client.post("/v1/chat/completions", json={"messages": history})
    assert answer.status_code == 200, answer.text
    assert bytes(engine.requests[0].prompt_token_ids) == (
        b"user: ab\nassistant: c\nuser: d\nassistant: "
    )


async def test_more_prompts_than_may_ever_wait_are_refused_for_good(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post("/v1/completions", json={"prompt": ["a"] * 33, "n": 2})
    assert answer.status_code == 400
    assert "66" in answer.json()["error"]["message"]
    assert engine.input_processor.num_processed == 0


async def test_a_model_without_a_chat_template_takes_no_messages(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.chat_template = None
    for path in ("/v1/chat/completions", "/tokenize"):
        answer = await client.post(path, json={"messages": USER})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "messages")
        assert "/v1/completions" in error["message"]


async def test_a_list_of_the_wrong_length_is_answered_in_one_plain_sentence(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/v1/chat/completions", json={"messages": []})
    message = answer.json()["error"]["message"]
    assert message == "messages must be a list of at least 1 item, got []"
