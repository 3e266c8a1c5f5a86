"""An app around a fake engine, and a client that speaks to it without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from tests.unit.server.fake_engine import FakeEngine

from chairlift.server.app import create_app
from chairlift.server.settings import ServerSettings


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings()


@pytest_asyncio.fixture
async def client(engine: FakeEngine, settings: ServerSettings) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(engine, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client
