"""Tenants and their limits through a real server, and a queue that holds what it promises."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.api.serving import Server, start_server

TENANTS = """
[[tenant]]
name = "narrow"
api_keys = ["key-narrow"]
max_running = 1

[[tenant]]
name = "wide"
api_keys = ["key-wide"]
tokens_per_minute = 60
"""


@pytest.fixture(scope="module")
def tenant_server(
    random_model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Two tenants, and a key of nobody's."""
    path = tmp_path_factory.mktemp("tenants") / "tenants.toml"
    path.write_text(TENANTS)
    server = start_server(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "2048", "--max-num-seqs", "8"),
        *("--tenants-file", str(path), "--api-key", "key-common", "--max-num-waiting", "2"),
    )
    yield server
    server.stop()


def client_of(server: Server, key: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=server.url, timeout=60, headers=headers)


async def test_a_tenant_runs_no_more_than_it_may_beside_others(tenant_server: Server) -> None:
    body = {"prompt": "go", "max_tokens": 1500, "ignore_eos": True}
    async with client_of(tenant_server, "key-narrow") as narrow:
        first = asyncio.ensure_future(narrow.post("/v1/completions", json=body))
        await asyncio.to_thread(
            tenant_server.wait_until,
            lambda: tenant_server.metric("num_requests_running") == 1,
            "first runs",
        )
        second = asyncio.ensure_future(narrow.post("/v1/completions", json=body))
        await asyncio.to_thread(
            tenant_server.wait_until,
            lambda: tenant_server.metric("num_requests_waiting") == 1,
            "second waits",
        )
        async with client_of(tenant_server, "key-common") as other:
            answer = await other.post("/v1/completions", json={"prompt": "go", "max_tokens": 1})
        assert answer.status_code == 200
        assert not first.done()
        assert [(await a).status_code for a in (first, second)] == [200, 200]


async def test_a_tenant_that_used_its_tokens_is_told_when_to_come_back(
    tenant_server: Server,
) -> None:
    body = {"prompt": "go", "max_tokens": 100, "ignore_eos": True}
    async with client_of(tenant_server, "key-wide") as client:
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        refused = await client.post("/v1/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "quota_exceeded")
    assert 30 <= int(refused.headers["retry-after"]) <= 50


async def test_a_burst_is_refused_before_it_is_tokenised(tenant_server: Server) -> None:
    """S14 (vllm#58192): two may wait, fifty come at once with texts of some 4000 tokens."""

    async def send(client: httpx.AsyncClient) -> tuple[int, float]:
        started_s = time.monotonic()
        body = {"prompt": "word " * 800, "max_tokens": 1}
        answer = await client.post("/v1/completions", json=body)
        return answer.status_code, time.monotonic() - started_s

    async with client_of(tenant_server, "key-common") as client:
        answers = await asyncio.gather(*(send(client) for _ in range(50)))
    statuses = [status for status, _ in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(429) >= 40


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('[[tenant]]\nname = "a"\napi_keys = ["k"]\nmax_queued = -2', "max_queued"),
        ("[tenant", "TOML"),
    ],
)
def test_a_broken_file_ends_the_start_with_one_line(
    tmp_path: Path, random_model_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(content)
    command = [sys.executable, "-m", "chairlift", "serve", str(random_model_path)]
    ended = subprocess.run(
        [*command, "--port", "0", "--tenants-file", str(path)], capture_output=True, text=True
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert words in line and str(path) in line
