"""Over real sockets: how streams begin, what a client that leaves does, and how the server ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio
import uvicorn
from tests.unit.server.fake_engine import FakeEngine

from chairlift.errors import ConfigError
from chairlift.server.app import create_app
from chairlift.server.lifecycle import GracefulServer
from chairlift.server.listening import bind, url_of
from chairlift.server.settings import ServerSettings


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(port=0)


STREAM = {"prompt": "hi", "stream": True}
WAIT_S = 10.0


class RunningServer:
    """A server on a free port of the loopback interface, on the test's own event loop."""

    def __init__(self, engine: FakeEngine, settings: ServerSettings) -> None:
        self._socket = bind(settings)
        self.url = url_of(self._socket)
        self.ready = asyncio.Event()
        app = create_app(engine, settings)
        config = uvicorn.Config(app, ws="none", lifespan="off", log_level="critical")
        self.server = GracefulServer(config, app.state.context, self.ready.set)
        self.running = asyncio.ensure_future(self.server.run_to_end([self._socket]))

    async def ended(self) -> None:
        """Wait until the server has ended by itself."""
        await asyncio.wait_for(asyncio.shield(self.running), WAIT_S)


@asynccontextmanager
async def serving(engine: FakeEngine, settings: ServerSettings) -> AsyncIterator[RunningServer]:
    server = RunningServer(engine, settings)
    await asyncio.wait_for(server.ready.wait(), WAIT_S)
    try:
        yield server
    finally:
        engine.gate.set()
        engine.first_gate.set()
        server.server.should_exit = True
        await server.ended()


@pytest_asyncio.fixture
async def server(engine: FakeEngine, settings: ServerSettings) -> AsyncIterator[RunningServer]:
    async with serving(engine, settings) as running:
        yield running


@pytest_asyncio.fixture
async def http(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=WAIT_S) as client:
        yield client


async def test_text_arrives_as_it_comes(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.gate.clear()
    async with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        lines = answer.aiter_lines()
        assert '"text":"H"' in await anext(lines)
        assert engine.num_finished == 0
        engine.gate.set()
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"


async def test_a_client_that_leaves_a_stream_aborts_its_request(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    """vllm#54947"""
    engine.gate.clear()
    async with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        await anext(answer.aiter_lines())
    await asyncio.wait_for(engine.aborted.wait(), WAIT_S)
    assert engine.running == 0


@pytest.mark.parametrize("prompt", ["hi", ["a", "b"]])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_token_aborts_its_requests(
    http: httpx.AsyncClient, engine: FakeEngine, prompt: str | list[str], stream: bool
) -> None:
    """vllm#9428"""
    engine.first_gate.clear()
    body = {"prompt": prompt, "stream": stream}
    asking = asyncio.ensure_future(http.post("/v1/completions", json=body))
    await asyncio.wait_for(engine.started.wait(), WAIT_S)
    asking.cancel()
    await asyncio.wait_for(engine.aborted.wait(), WAIT_S)
    await asyncio.wait_for(engine.idle.wait(), WAIT_S)
    assert engine.num_aborted == len(engine.requests)


async def test_a_client_that_leaves_while_sending_its_body_leaves_no_trace(
    server: RunningServer, http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    address = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(address[0], int(address[1]))
    writer.write(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"pro')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await http.post("/v1/completions", json={"prompt": "a"})).status_code == 200
    assert len(engine.requests) == 1


async def test_a_connection_is_used_again_after_an_answer_in_either_mode(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    for body in (STREAM, {"prompt": "a"}, STREAM):
        assert (await http.post("/v1/completions", json=body)).status_code == 200
    assert len(server.server.server_state.connections) == 1


async def test_a_body_of_a_hundred_megabytes_is_answered_and_the_server_goes_on(
    http: httpx.AsyncClient,
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"a" * 1_000_000

    answer = await http.post("/v1/completions", content=parts())
    assert answer.status_code == 413
    assert (await http.post("/v1/completions", json={"prompt": "a"})).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_streams_finish_and_refuses_new_requests(
    server: RunningServer, http: httpx.AsyncClient, engine: FakeEngine, number: signal.Signals
) -> None:
    engine.gate.clear()
    async with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        server.server.begin_shutdown(number)
        health = await http.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "draining"})
        refused = await http.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "server_draining"
        engine.gate.set()
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    await server.ended()
    assert engine.drained_with_s == 30.0


async def test_a_second_interrupt_ends_the_server_at_once(
    server: RunningServer, http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.gate.clear()
    async with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        await anext(answer.aiter_lines())
        server.server.begin_shutdown(signal.SIGINT)
        server.server.begin_shutdown(signal.SIGINT)
        await server.ended()
    assert server.server.is_interrupted


async def test_the_engine_s_death_shows_in_health_and_ends_the_server(
    server: RunningServer, http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    """vllm#39863"""
    engine.died.set()
    assert (await http.get("/health")).status_code == 503
    await server.ended()
    assert "SIGKILL" in str(server.server.death)


async def test_a_signal_of_the_process_begins_the_shutdown(
    server: RunningServer, engine: FakeEngine
) -> None:
    signal.raise_signal(signal.SIGTERM)
    await server.ended()
    assert engine.drained_with_s == 30.0


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            bind(ServerSettings(port=port))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
def test_an_address_that_is_not_ours_is_said_in_one_line(host: str) -> None:
    with pytest.raises(ConfigError, match=host):
        bind(ServerSettings(host=host, port=0))
