"""A server holds the memory that it says it will hold, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.serving import Server, start_server

from chairlift.models.pull import locate

pytestmark = pytest.mark.e2e

MIB = 1 << 20
POOL_BYTES = 128 * MIB
PROMPT_TOKENS = 1500


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024


def held_mib(server: Server) -> float:
    return resident_mib(server.process.pid) + resident_mib(server.engine_pid())


@pytest.fixture
def server(default_model: str) -> Iterator[Server]:
    flags = ("--kv-cache-memory-bytes", str(POOL_BYTES))
    server = start_server(locate(default_model), *flags)
    yield server
    server.stop()


def test_resident_memory_with_a_full_pool_is_what_was_asked_for(server: Server) -> None:
    line = next(line for line in server.lines if line.startswith("Memory: "))
    numbers = [float(number) for number in re.findall(r"\d+", line)]
    stated, parts = numbers[0], numbers[1:]
    assert stated == pytest.approx(sum(parts), abs=len(parts))
    weights, pool, *_ = parts
    assert weights == pytest.approx(135e6 * 2 / MIB, rel=0.01)
    assert pool == pytest.approx(POOL_BYTES / MIB, rel=0.01)
    assert held_mib(server) < 1.1 * stated
    # The blocks of ended requests keep their content, so that each prompt takes others.
    for first in range(100, 105):
        answer = server.complete([first] * PROMPT_TOKENS, max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == PROMPT_TOKENS
    assert server.metric("kv_blocks", state="free") <= 1  # the last prompts end in parts of blocks
    assert held_mib(server) == pytest.approx(stated, rel=0.1)
