"""Every failure has OpenAI's shape, a fitting status, and tells clients whether to retry."""

from __future__ import annotations

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

from chairlift.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineDrainingError,
    EngineOverloadedError,
    QueueTimeoutError,
    RequestFailedError,
    StartTooLateError,
)
from chairlift.server.responses import ErrorResponse


async def _post(client: httpx.AsyncClient) -> httpx.Response:
    answer = await client.post("/v1/completions", json={"prompt": "a"})
    ErrorResponse.model_validate_json(answer.content)
    return answer


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (EngineOverloadedError("full", retry_after_s=2.2), 429, "engine_overloaded"),
        (StartTooLateError("late", retry_after_s=1.0), 429, "start_too_late"),
        (QueueTimeoutError("waited", retry_after_s=1.0), 503, "queue_timeout"),
        (EngineDrainingError("ending"), 503, "server_draining"),
        (EngineDeadError("dead"), 500, "engine_dead"),
        (RequestFailedError("NaN"), 500, "request_failed"),
        (ContextLengthError("too long", param="prompt"), 400, "context_length_exceeded"),
    ],
)
async def test_errors_of_the_engine_have_their_status_and_code(
    client: httpx.AsyncClient, engine: FakeEngine, refusal: Exception, status: int, code: str
) -> None:
    engine.refusal = refusal  # type: ignore[assignment]
    answer = await _post(client)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"]) == (status, code, str(refusal))


async def test_overload_says_when_to_come_back_and_may_be_retried(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.refusal = EngineOverloadedError("full", retry_after_s=2.2)
    answer = await _post(client)
    assert answer.headers["retry-after"] == "3"
    assert "x-should-retry" not in answer.headers


async def test_whoever_waited_too_long_is_told_how_long_that_was(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.failure = QueueTimeoutError("waited", retry_after_s=2.2)
    for stream in (False, True):
        body = {"prompt": "a", "stream": stream}
        answer = await client.post("/v1/completions", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
        assert answer.json()["error"]["code"] == "queue_timeout"


async def test_a_full_queue_is_noticed_before_anything_is_tokenised(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    """S14 (vllm#58192)"""
    engine.refusal = EngineOverloadedError("full", retry_after_s=1.0)
    await _post(client)
    assert engine.input_processor.num_processed == 0


async def test_what_nobody_expected_is_a_500_that_shows_no_internals(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.failure = KeyError("secret")
    answer = await _post(client)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "internal server error"


async def test_an_unknown_model_is_not_found(client: httpx.AsyncClient) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": []}),
    ):
        answer = await client.post(path, json=body | {"model": "gpt-9"})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"


async def test_an_unknown_path_is_not_found_in_the_same_shape(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/nothing")
    ErrorResponse.model_validate_json(answer.content)
    assert answer.status_code == 404
    assert "/v1/nothing" in answer.json()["error"]["message"]


async def test_a_wrong_method_is_refused_with_the_right_ones(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/completions")
    ErrorResponse.model_validate_json(answer.content)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_errors_carry_the_request_id(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", json={}, headers={"x-request-id": "abc"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (400, "abc")


@pytest.mark.parametrize("bad", ["a b", "a" * 129, "é"])
async def test_a_request_id_that_cannot_be_echoed_is_refused(
    client: httpx.AsyncClient, bad: str
) -> None:
    headers = {b"x-request-id": bad.encode("latin-1")}
    answer = await client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-request-id")
