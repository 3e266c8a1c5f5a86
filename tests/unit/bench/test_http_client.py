"""The client reads what servers stream, and says what went wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.bench.stand_in_server import chunked, event, stand_in, with_status

from chairlift.bench.http_client import Address, HttpError, read_body, stream_events
from chairlift.errors import ConfigError


async def events(answer: bytes, path: str = "/v1/completions") -> list[bytes]:
    async with stand_in(lambda _: answer) as server:
        stream = stream_events(Address.parse(server.url), path, b"{}", {"X-Key": "abc"})
        found = [data async for data in stream]
        assert "X-Key: abc" in server.heads[0]
        assert server.heads[0].startswith(f"POST {path} HTTP/1.1")
        return found


async def test_events_are_given_in_order() -> None:
    assert await events(chunked(event({"a": 1}), event({"b": 2}))) == [b'{"a": 1}', b'{"b": 2}']


async def test_an_event_may_be_cut_between_chunks_and_share_one() -> None:
    answer = chunked(b'data: {"a"', b': 1}\n\ndata: {"b": 2}\n', b"\n: comment\n\ndata: [DONE]\n\n")
    assert await events(answer) == [b'{"a": 1}', b'{"b": 2}', b"[DONE]"]


async def test_another_status_is_an_error_with_what_the_server_said() -> None:
    with pytest.raises(HttpError, match="status 429: slow down please"):
        await events(with_status("429 Too Many Requests", b"slow down\n please"))


async def test_an_answer_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(HttpError, match="closed the connection in the middle"):
        await events(chunked(event({"a": 1}))[:-5])


async def test_what_is_not_http_is_an_error() -> None:
    with pytest.raises(HttpError, match="HttpParser"):
        await events(b"220 mail server ready\r\n")


async def test_nobody_there_is_an_error() -> None:
    async with stand_in(lambda _: b"") as server:
        address = Address.parse(server.url)
    with pytest.raises(HttpError, match=f"cannot connect to 127.0.0.1:{address.port}"):
        await read_body(address, "/")


async def test_the_path_of_the_address_comes_before_every_path() -> None:
    async with stand_in(lambda _: b"") as server:
        await read_body(Address.parse(server.url + "/proxy/"), "/v1/models")
        assert server.heads[0].startswith("GET /proxy/v1/models HTTP/1.1")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:8000", Address("localhost", 8000, False, "")),
        ("https://example.org/api/", Address("example.org", 443, True, "/api")),
        ("http://[::1]:80", Address("::1", 80, False, "")),
    ],
)
def test_addresses_are_read(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://x:port"])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        Address.parse(url)
