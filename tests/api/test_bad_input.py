"""One bad request costs one 400, and the server lives on: every case is sent to a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.api.serving import Server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"99999999": -100}}, "logit_bias"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"stop_token_ids": [9999999], "min_tokens": 5}, "stop_token_ids"),
        ({"n": 5_000_000}, "n"),
        ({"temperature": -3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 7}, "top_p"),
        ({"seed": 10**20}, "seed"),
        ({"seed": "100"}, "seed"),
        ({"top_k": 10**9}, "top_k"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"prompt_logprobs": 10**6}, "prompt_logprobs"),
    ],
)
@pytest.mark.parametrize(
    ("path", "base"), [(COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": MESSAGES})]
)
def test_a_value_out_of_its_bounds_is_refused_by_name(
    server: Server, path: str, base: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    """vllm#16529, vllm#54195, sglang#36856, FreeToken#223"""
    assert server.refused(path, base | fields)["param"] == param


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {"prompt": "hi", "logprobs": 1_000_000}, "logprobs"),
        (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
        (COMPLETIONS, {"prompt": [99999999]}, "prompt"),
        (COMPLETIONS, {"prompt": [-1]}, "prompt"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": [""]}, "prompt"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": [[]]}, "prompt"),
        (CHAT, {"messages": []}, "messages"),
        (COMPLETIONS, {"prompt": "hi", "model": 7}, "model"),
    ],
)
def test_a_bad_prompt_or_count_is_refused_by_name(
    server: Server, path: str, body: dict[str, Any], param: str
) -> None:
    """sglang#40076, vllm#7283"""
    assert server.refused(path, body)["param"] == param


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused_by_name(server: Server, value: str) -> None:
    body = b'{"prompt": "hi", "temperature": %s}' % value.encode()
    assert server.refused(COMPLETIONS, body)["param"] == "temperature"


def test_no_tokens_at_all_are_refused_the_second_time_as_the_first(server: Server) -> None:
    """TensorRT-LLM#7692"""
    body = {"prompt": "hi", "max_tokens": 0}
    first, second = (server.refused(COMPLETIONS, body) for _ in range(2))
    assert first == second
    assert first["param"] == "max_tokens"


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize("escape", [rb"\ud83d", rb"\ude00", rb"\ud83d\ud83d"])
def test_a_lone_surrogate_is_refused_in_both_modes(
    server: Server, escape: bytes, stream: str
) -> None:
    """Rapid-MLX#730"""
    body = b'{"messages": [{"role": "user", "content": "emoji %s"}], "stream": %s}'
    server.refused(CHAT, body % (escape, stream.encode()))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"hi"', b'{"prompt": "\xff"}', b"[" * 10_000, b'{"prompt": hi}', b"\x00"],
)
def test_what_is_no_json_object_is_refused(server: Server, body: bytes) -> None:
    server.refused(COMPLETIONS, body)


def test_a_body_of_a_hundred_megabytes_is_refused(server: Server) -> None:
    body = json.dumps({"prompt": "a" * 100_000_000}).encode()
    answer = server.http.post(COMPLETIONS, content=body)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    server.complete("still there?", max_tokens=1)


def test_an_unknown_model_is_not_found(server: Server) -> None:
    answer = server.http.post(COMPLETIONS, json={"prompt": "hi", "model": "gpt-9"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_a_text_that_could_never_fit_is_refused(server: Server) -> None:
    error = server.refused(COMPLETIONS, {"prompt": "word " * 500_000})
    assert error["code"] == "context_length_exceeded"
