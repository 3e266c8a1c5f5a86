"""A pool that is too small for all: who waits, who passes, and that answers stay the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.api.serving import Server, start_server

MAX_HEAD_PASSES = 4


@pytest.fixture(scope="module")
def swap_server(random_model_path: Path) -> Iterator[Server]:
    """200 blocks of 16 tokens, and a second tier with room for all that may be preempted."""
    server = start_server(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "200", "--max-num-seqs", "8"),
        *("--max-head-passes", str(MAX_HEAD_PASSES), "--max-model-len", "4096"),
        *("--preemption-mode", "swap", "--swap-space", "0.0625"),
    )
    yield server
    server.stop()


def prompt_of(num_tokens: int, first: int) -> list[int]:
    """Token ids whose blocks no other prompt has."""
    return [(first + i * i) % 250 for i in range(num_tokens)]


def body_of(num_prompt: int, max_tokens: int, first: int) -> dict[str, Any]:
    return {
        "prompt": prompt_of(num_prompt, first),
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }


def waits_on(server: Server) -> set[str]:
    """Limits that requests wait for now."""
    live = server.http.get("/v1/requests").json()["data"]
    return {choice["wait"]["limit"] for choice in live if choice["wait"] is not None}


def test_small_requests_pass_a_big_one_that_lacks_blocks_so_often_and_no_more(
    swap_server: Server,
) -> None:
    """S4 (vllm#31731, vllm#33499): one runs with half of the blocks, the next needs nearly all."""
    finished = swap_server.metric("request_success_total", finished_reason="length")
    is_over = threading.Event()
    holder = swap_server.stream("/v1/completions", body_of(1500, 1600, 1))
    next(holder)

    def send_small() -> None:
        while not is_over.is_set():
            swap_server.post("/v1/completions", body_of(17, 2, 2))

    def num_passed() -> float:
        return swap_server.metric("request_success_total", finished_reason="length") - finished

    with ThreadPoolExecutor(4) as threads:
        big = threads.submit(swap_server.post, "/v1/completions", body_of(3100, 1, 3))
        swap_server.wait_until(lambda: waits_on(swap_server) == {"kv_blocks"}, "big one waits")
        small = [threads.submit(send_small) for _ in range(3)]
        try:
            swap_server.wait_until(lambda: "head_of_line" in waits_on(swap_server), "no passing")
            swap_server.wait_until(lambda: num_passed() >= MAX_HEAD_PASSES, "those that passed end")
            assert (num_passed(), big.done()) == (MAX_HEAD_PASSES, False)
            *_, done = holder
            assert done == "[DONE]"
            assert big.result()["usage"]["completion_tokens"] == 1
        finally:
            is_over.set()  # or leaving the pool would wait for ever
        for sender in small:
            sender.result()
    swap_server.wait_idle()


def test_answers_are_the_same_through_swapping_and_it_shows_in_metrics_and_events(
    swap_server: Server,
) -> None:
    bodies = [body_of(400, 400, 10 + i) for i in range(6)]
    alone = [swap_server.post("/v1/completions", body) for body in bodies]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda b: swap_server.post("/v1/completions", b), bodies))
    for answer, expected in zip(answers, alone, strict=True):
        assert answer["choices"][0]["token_ids"] == expected["choices"][0]["token_ids"]
    num_in = swap_server.metric("swapped_kv_blocks_total", direction="in")
    assert 0 < num_in <= swap_server.metric("swapped_kv_blocks_total", direction="out")
    assert swap_server.metric("step_seconds_total", part="swap") > 0
    swap_server.wait_idle()
    assert swap_server.metric("cpu_cache_usage_perc") == 0
    events = [
        event
        for answer in answers
        for choice in swap_server.http.get(f"/v1/requests/{answer['id']}").json()["choices"]
        for event in choice["events"]
    ]
    assert {event["mode"] for event in events if event["kind"] == "preempted"} == {"swap"}
    assert any(event["kind"] == "resumed" and event["swapped_tokens"] > 0 for event in events)


def test_the_server_says_how_much_it_can_swap(swap_server: Server) -> None:
    (line,) = [line for line in swap_server.lines if line.startswith("Swap space:")]
    # 2 layers, K and V, 2 heads of 16 floats, 16 tokens: 8 KiB a block.
    assert line.startswith(f"Swap space: {(1 << 26) // (1 << 13)} KV blocks, ")
