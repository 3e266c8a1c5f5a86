"""Sends streaming completions all at once and reads them to the end, with as little work as can be.

Run by ``http_throughput.py`` in a process of its own, because it shares the machine's cores with
the server it measures: it only looks for the end of each stream and the token count before it.
Reads one JSON line per round from standard input (``port``, ``bodies``), writes one (``wall_s``,
``cpu_s``, ``num_tokens``, ``num_reads``).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from functools import partial
from typing import cast

import uvloop

_END = b"data: [DONE]"
_TAIL_BYTES = 1024
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens":(\d+)')


class _Stream(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request: bytes, done: asyncio.Future[int]) -> None:
        self._request = request
        self._done = done
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self.num_reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.num_reads += 1
        self._tail = self._tail[-_TAIL_BYTES:] + data if len(data) < _TAIL_BYTES else data
        if _END in data or _END in self._tail:
            counts = _COMPLETION_TOKENS.findall(self._tail)
            if self._transport is not None:
                self._transport.close()
            self._done.set_result(int(counts[-1]) if counts else 0)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(f"ended early: {self._tail!r}"))


def _request(body: str) -> bytes:
    content = body.encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _same(stream: _Stream) -> _Stream:
    return stream


async def _round(port: int, bodies: list[str]) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    done: list[asyncio.Future[int]] = [loop.create_future() for _ in bodies]
    streams = [_Stream(_request(body), future) for body, future in zip(bodies, done, strict=True)]
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    for stream in streams:
        await loop.create_connection(partial(_same, stream), "127.0.0.1", port)
    num_tokens = sum(await asyncio.gather(*done))
    return {
        "wall_s": time.perf_counter() - start_s,
        "cpu_s": time.process_time() - start_cpu_s,
        "num_tokens": num_tokens,
        "num_reads": sum(stream.num_reads for stream in streams),
    }


def main() -> None:
    """Do rounds until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(uvloop.run(_round(order["port"], order["bodies"]))), flush=True)


if __name__ == "__main__":
    main()
