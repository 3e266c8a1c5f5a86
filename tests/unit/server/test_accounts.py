"""Whose a request is and how urgent: from HTTP to the engine."""

from __future__ import annotations

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

BODIES = {
    "/v1/completions": {"prompt": ["a", "b"]},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.parametrize("path", BODIES)
async def test_the_priority_of_a_request_reaches_the_engine(
    client: httpx.AsyncClient, engine: FakeEngine, path: str
) -> None:
    answer = await client.post(path, json=BODIES[path] | {"priority": -7})
    assert answer.status_code == 200
    assert {request.priority for request in engine.requests} == {-7}


@pytest.mark.parametrize("path", BODIES)
async def test_without_a_priority_it_is_zero(
    client: httpx.AsyncClient, engine: FakeEngine, path: str
) -> None:
    await client.post(path, json=BODIES[path] | {"priority": None})
    assert {request.priority for request in engine.requests} == {0}
