"""A thousand requests against one slot: refused with a time, in bounded memory."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from tests.api.serving import Server

NUM_REQUESTS = 1000
MIB = 1 << 20


def resident_bytes(pid: int) -> int:
    """Memory that a process has in use."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise AssertionError(status)
    return int(found[1]) * 1024


async def test_a_thousand_requests_are_answered_or_refused_and_memory_stays_flat(
    single_server: Server,
) -> None:
    """S15 (vllm#18826, vllm#13395)"""
    body = {"prompt": "go", "max_tokens": 4, "ignore_eos": True}
    at_once = asyncio.Semaphore(100)
    before = resident_bytes(single_server.process.pid)

    async def send(client: httpx.AsyncClient) -> httpx.Response:
        async with at_once:
            return await client.post("/v1/completions", json=body)

    async with httpx.AsyncClient(base_url=single_server.url, timeout=60) as client:
        answers = await asyncio.gather(*(send(client) for _ in range(NUM_REQUESTS)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert len(refused) > NUM_REQUESTS / 4
    assert all(1 <= int(answer.headers["retry-after"]) <= 600 for answer in refused)
    assert resident_bytes(single_server.process.pid) - before < 64 * MIB
    single_server.wait_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_too_long_gets_a_503_whether_it_streams_or_not(
    impatient_server: Server, stream: bool
) -> None:
    """S16 (Neroued/ninfer#137)"""
    endless = {"prompt": "go", "max_tokens": 3000, "ignore_eos": True}
    running = impatient_server.stream("/v1/completions", endless)
    next(running)
    before = impatient_server.metric("requests_refused_total", reason="queue_timeout")
    body = {"prompt": "late", "max_tokens": 4, "stream": stream}
    answer = impatient_server.http.post("/v1/completions", json=body)
    running.close()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "queue_timeout"
    assert "max_queue_time" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) >= 1
    after = impatient_server.metric("requests_refused_total", reason="queue_timeout")
    assert after == before + 1
    impatient_server.wait_idle()


def test_who_would_start_too_late_is_refused_at_once(prompt_server: Server) -> None:
    endless = {"prompt": "go", "max_tokens": 3000, "ignore_eos": True}
    running = prompt_server.stream("/v1/completions", endless)
    next(running)
    prompt_server.wait_until(
        lambda: prompt_server.metric("start_delay_seconds") > 0.05, "a foretold delay"
    )
    answer = prompt_server.http.post("/v1/completions", json={"prompt": "x", "stream": True})
    running.close()
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "start_too_late"
    assert int(answer.headers["retry-after"]) >= 1
    assert prompt_server.metric("requests_refused_total", reason="start_too_late") == 1
    prompt_server.wait_idle()
    prompt_server.complete("and now", max_tokens=2)
