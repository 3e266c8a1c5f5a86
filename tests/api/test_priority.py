"""Urgent requests before others, and a bound on how long the others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.api.serving import Server, start_server

AGING_S = 0.2


@pytest.fixture(scope="module")
def priority_server(random_model_path: Path) -> Iterator[Server]:
    """One slot, given to the most urgent."""
    server = start_server(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "2048", "--max-num-seqs", "1"),
        *("--scheduling-policy", "priority", "--priority-aging", str(AGING_S)),
    )
    yield server
    server.stop()


def test_an_urgent_request_takes_the_only_slot_and_the_other_goes_on_afterwards(
    priority_server: Server,
) -> None:
    """S5 (vllm#40004, vllm#54530)"""
    before = priority_server.metric("num_preemptions_total")
    body = {"prompt": "go", "max_tokens": 2000, "ignore_eos": True, "priority": 0}
    events = priority_server.stream("/v1/completions", body)
    next(events)
    started_s = time.monotonic()
    urgent = priority_server.complete("now", max_tokens=3, ignore_eos=True, priority=-20)
    urgent_s = time.monotonic() - started_s
    *_, last, done = events
    whole_s = time.monotonic() - started_s
    assert urgent["usage"]["completion_tokens"] == 3
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    assert urgent_s < whole_s / 2
    assert priority_server.metric("num_preemptions_total") == before + 1
    priority_server.wait_idle()


def test_equals_do_not_take_the_slot_from_one_another(priority_server: Server) -> None:
    """S5"""
    before = priority_server.metric("num_preemptions_total")
    body = {"prompt": "go", "max_tokens": 100, "ignore_eos": True, "priority": 3}
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(priority_server.post, "/v1/completions", body) for _ in range(4)]
        assert [a.result()["usage"]["completion_tokens"] for a in answers] == [100] * 4
    assert priority_server.metric("num_preemptions_total") == before


def test_a_low_request_starts_within_the_aging_bound_of_a_stream_of_urgent_ones(
    priority_server: Server,
) -> None:
    """S7 (sglang#31954): it goes before everything that comes (5 + 5) * 0.2 s after it."""
    is_over = threading.Event()

    def send_urgent() -> None:
        while not is_over.is_set():
            priority_server.complete("hot", max_tokens=40, ignore_eos=True, priority=-5)

    with ThreadPoolExecutor(4) as threads:
        urgent = [threads.submit(send_urgent) for _ in range(4)]
        priority_server.wait_until(
            lambda: priority_server.metric("num_requests_waiting") >= 1, "saturated"
        )
        started_s = time.monotonic()
        priority_server.complete("cold", max_tokens=1, ignore_eos=True, priority=5)
        waited_s = time.monotonic() - started_s
        is_over.set()
        for sender in urgent:
            sender.result()
    assert waited_s < 10 * AGING_S + 5.0


def test_a_target_for_the_start_refuses_equals_of_those_that_run_and_lets_urgent_ones_in(
    random_model_path: Path,
) -> None:
    server = start_server(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "512", "--max-num-seqs", "1"),
        *("--scheduling-policy", "priority", "--target-ttft", "0.05"),
    )
    endless = {"prompt": "go", "max_tokens": 3000, "ignore_eos": True, "priority": 5}
    running = server.stream("/v1/completions", endless)
    next(running)
    server.wait_until(lambda: server.metric("start_delay_seconds") > 0.05, "a foretold delay")
    body = {"prompt": "now", "max_tokens": 2}
    equal = server.http.post("/v1/completions", json=body | {"priority": 5})
    urgent = server.http.post("/v1/completions", json=body | {"priority": -5})
    running.close()
    assert (equal.status_code, equal.json()["error"]["code"]) == (429, "start_too_late")
    assert urgent.status_code == 200
    assert server.stop() == 0
