"""A small asynchronous HTTP client: what a load generator needs, at little cost per chunk.

The client shares the machine with the server it measures, and a general client takes several times
the CPU time for a streamed token.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from chairlift.errors import ConfigError

_READ_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 16


class HttpError(Exception):
    """A request failed: no connection, a broken answer, or a status other than 200."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        base_path: Without a slash at its end.
    """

    host: str
    port: int
    is_tls: bool
    base_path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL as in ``http://127.0.0.1:8000`` or ``https://host/v1``.

        Raises:
            ConfigError: It is no such URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"base_url {url!r} is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"base_url must be http://HOST:PORT or https://HOST, got {url!r}")
        is_tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if is_tls else 80), is_tls, parts.path.rstrip("/"))


class _Answer:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.is_complete = False

    def on_body(self, data: bytes) -> None:
        """A piece of the body, without chunk marks."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """The end."""
        self.is_complete = True

    def take(self) -> bytes:
        """What came since the last call."""
        data = b"".join(self.body)
        self.body.clear()
        return data


async def stream_body(
    address: Address,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[bytes]:
    """Send a request and give the pieces of its answer as they come.

    Raises:
        HttpError: The server cannot be reached, the answer is broken or cut short, or its status
            is not 200; the message holds what the server said.
    """
    try:
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=ssl.create_default_context() if address.is_tls else None
        )
    except OSError as error:
        raise HttpError(f"cannot connect to {address.host}:{address.port}: {error}") from error
    try:
        writer.write(_request_head(address, method, path, len(body), headers or {}) + body)
        await writer.drain()
        async for piece in _pieces(reader):
            yield piece
    except (OSError, httptools.HttpParserError) as error:
        raise HttpError(f"{type(error).__name__}: {error}") from error
    finally:
        writer.close()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    failed = b""
    while not answer.is_complete:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise HttpError("the server closed the connection in the middle of an answer")
        parser.feed_data(data)
        piece = answer.take()
        if parser.get_status_code() != 200:
            failed = (failed + piece)[:_MAX_ERROR_BYTES]
        elif piece:
            yield piece
    if parser.get_status_code() != 200:
        text = " ".join(failed.decode("utf-8", "replace").split())
        raise HttpError(f"status {parser.get_status_code()}: {text[:300]}")


def _request_head(
    address: Address, method: str, path: str, length: int, headers: Mapping[str, str]
) -> bytes:
    lines = [
        f"{method} {address.base_path}{path} HTTP/1.1",
        f"Host: {address.host}:{address.port}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def read_body(address: Address, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """GET a page.

    Raises:
        HttpError: As :func:`stream_body`.
    """
    return b"".join([piece async for piece in stream_body(address, "GET", path, b"", headers)])


async def stream_events(
    address: Address, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> AsyncIterator[bytes]:
    """POST a request and give the data of each server-sent event of its answer.

    Raises:
        HttpError: As :func:`stream_body`.
    """
    rest = b""
    async for piece in stream_body(address, "POST", path, body, headers):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
