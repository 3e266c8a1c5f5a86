"""Requests that do not fit, long prompts beside short ones, clients that leave, gauges."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from tests.api.serving import Server


def prompt_of(num_tokens: int, first: int = 40) -> list[int]:
    """Token ids without a pattern that would make blocks equal."""
    return [(first + i * i) % 250 for i in range(num_tokens)]


def test_a_prompt_larger_than_the_pool_is_refused_and_the_next_is_served(
    small_server: Server,
) -> None:
    """vllm#39734: it must not sit at the head of the queue for ever."""
    error = small_server.refused("/v1/completions", {"prompt": prompt_of(200), "max_tokens": 1})
    assert error["code"] == "context_length_exceeded"
    assert "1024" in error["message"] and "128" in error["message"]
    answer = small_server.complete(prompt_of(5), max_tokens=3, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 3


def test_a_request_that_would_outgrow_the_pool_is_refused_at_the_door(
    small_server: Server,
) -> None:
    """vllm#52530: it would be preempted and computed anew for ever."""
    body = {"prompt": prompt_of(120), "max_tokens": 24, "ignore_eos": True}
    error = small_server.refused("/v1/completions", body)
    assert error["code"] == "context_length_exceeded"
    small_server.wait_idle()


@pytest.mark.parametrize("num_tokens", [112, 120, 127, 128])
def test_a_prompt_that_just_fits_is_served(small_server: Server, num_tokens: int) -> None:
    """sglang#39271: validator and allocator share one bound."""
    answer = small_server.complete(prompt_of(num_tokens), max_tokens=1, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 1
    small_server.wait_idle()


def test_a_near_capacity_request_that_is_cancelled_leaves_the_pool_usable(
    small_server: Server,
) -> None:
    """sglang#39271"""
    body = {"prompt": prompt_of(100), "max_tokens": 28, "ignore_eos": True}
    for _ in range(3):
        events = small_server.stream("/v1/completions", body)
        next(events)
        events.close()
    small_server.wait_idle()
    assert small_server.complete(prompt_of(5), max_tokens=2)["usage"]["completion_tokens"] >= 1


def test_a_long_prompt_does_not_stop_running_requests(server: Server) -> None:
    """llama.cpp#29175: 4096 tokens at 64 a step leave room for the other request in each."""
    running = {"prompt": "go", "max_tokens": 4000, "ignore_eos": True, "return_token_ids": True}
    events = server.stream("/v1/completions", running)
    next(events)
    before = server.metric("generation_tokens_total")
    server.complete(prompt_of(4096), max_tokens=1)
    after = server.metric("generation_tokens_total")
    assert after - before >= 4096 / 64
    events.close()
    server.wait_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_closing_the_client_stops_the_generation(server: Server, stream: bool) -> None:
    """vllm#54947, vllm#9428"""
    aborted = server.metric("request_success_total", finished_reason="abort")
    before = server.metric("generation_tokens_total")
    body = {"prompt": "go", "max_tokens": 8000, "ignore_eos": True, "stream": stream}
    with httpx.Client(base_url=server.url) as client, pytest.raises(httpx.ReadTimeout):
        request = client.build_request(
            "POST", "/v1/completions", json=body, timeout=httpx.Timeout(10, read=0.05)
        )
        answer = client.send(request, stream=True)
        for _ in answer.iter_bytes():
            if server.metric("generation_tokens_total") > before:
                raise httpx.ReadTimeout("read enough", request=request)
    server.wait_idle()
    assert server.metric("request_success_total", finished_reason="abort") == aborted + 1
    assert server.metric("generation_tokens_total") - before < 8000


def test_a_client_that_leaves_the_queue_is_never_computed(single_server: Server) -> None:
    blocker = {"prompt": "go", "max_tokens": 8000, "ignore_eos": True}
    events = single_server.stream("/v1/completions", blocker)
    next(events)
    with httpx.Client(base_url=single_server.url) as client, pytest.raises(httpx.ReadTimeout):
        client.post(
            "/v1/completions", json={"prompt": "queued"}, timeout=httpx.Timeout(10, read=0.1)
        )
    single_server.wait_until(
        lambda: single_server.metric("num_requests_waiting") == 0, "none waiting"
    )
    events.close()
    single_server.wait_idle()


def test_a_full_queue_refuses_with_a_time_to_come_back(single_server: Server) -> None:
    """S15 (vllm#18826): 12 may wait behind the one that runs."""
    blocker = {"prompt": "go", "max_tokens": 8000, "ignore_eos": True}
    events = single_server.stream("/v1/completions", blocker)
    next(events)
    with ThreadPoolExecutor(12) as threads:
        body = {"prompt": "go", "max_tokens": 1}
        queued = [
            threads.submit(single_server.http.post, "/v1/completions", json=body) for _ in range(12)
        ]
        single_server.wait_until(
            lambda: single_server.metric("num_requests_waiting") == 12, "12 waiting"
        )
        refused = single_server.http.post("/v1/completions", json=body)
        events.close()
        assert [answer.result().status_code for answer in queued] == [200] * 12
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "engine_overloaded")
    assert 1 <= int(refused.headers["retry-after"]) <= 600
    single_server.wait_idle()


def test_nine_of_ten_requests_are_seen_waiting_while_one_runs(single_server: Server) -> None:
    """vllm-omni#6547"""
    body = {"prompt": "go", "max_tokens": 500, "ignore_eos": True}
    with ThreadPoolExecutor(10) as threads:
        answers = [
            threads.submit(single_server.http.post, "/v1/completions", json=body) for _ in range(10)
        ]
        single_server.wait_until(
            lambda: (
                single_server.metric("num_requests_running") == 1
                and single_server.metric("num_requests_waiting") == 9
            ),
            "running 1, waiting 9",
        )
        assert all(answer.result().status_code == 200 for answer in answers)
    single_server.wait_idle()


def test_the_first_chunk_of_a_chat_comes_with_its_first_token(server: Server) -> None:
    """vllm#15106: the prompt takes several steps."""
    messages = [{"role": "user", "content": "a long way down " * 40}]
    body = {"messages": messages, "max_tokens": 4, "ignore_eos": True, "return_token_ids": True}
    first = next(iter(server.stream("/v1/chat/completions", body)))
    choice = first["choices"][0]
    assert choice["delta"]["role"] == "assistant"
    assert len(choice["token_ids"]) >= 1
    assert len(choice["prompt_token_ids"]) > 64


def test_live_requests_with_one_id_all_end_as_if_they_had_others(server: Server) -> None:
    """O7 (vllm#10583, vllm#15041): two answered whole, and one whose client leaves meanwhile."""
    headers = {"x-request-id": "again"}
    body = {"prompt": "go", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    left = body | {"max_tokens": 8000, "stream": True}
    with (
        ThreadPoolExecutor(2) as threads,
        server.http.stream("POST", "/v1/completions", json=left, headers=headers) as answer,
    ):
        next(answer.iter_lines())
        whole = [
            threads.submit(server.http.post, "/v1/completions", json=body, headers=headers)
            for _ in range(2)
        ]
        answers = [sent.result() for sent in whole]
    for answer in answers:
        assert answer.headers["x-request-id"] == "again"
        assert answer.json()["usage"]["completion_tokens"] == 300
    texts = {answer.json()["choices"][0]["text"] for answer in answers}
    assert texts == {server.complete("go", max_tokens=300, ignore_eos=True)["choices"][0]["text"]}
    server.wait_idle()


def test_the_openai_client_sees_a_long_request_as_a_bad_request(small_server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        small_server.openai.completions.create(model="tiny-random", prompt="a" * 500)
    assert caught.value.code == "context_length_exceeded"
    assert json.loads(caught.value.response.text)["error"]["param"] == "prompt"
