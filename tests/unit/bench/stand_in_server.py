"""An OpenAI-compatible server of a few lines, whose answers a test decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

METRICS = """\
vllm:request_queue_time_seconds_sum{{model_name="m"}} {queue_s}
vllm:request_queue_time_seconds_count{{model_name="m"}} {count}
vllm:num_preemptions_total{{model_name="m"}} {preemptions}
vllm:prefix_cache_queries_total{{model_name="m"}} {looked_up}
vllm:prefix_cache_hits_total{{model_name="m"}} {cached}
"""


def event(data: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunked(*pieces: bytes) -> bytes:
    """A whole answer with status 200 in chunks."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def with_status(status: str, body: bytes) -> bytes:
    """A whole answer with a length."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def completion(num_tokens: int, num_prompt: int, num_cached: int = 0) -> bytes:
    """The stream of an answer, one event per token."""
    usage = {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_tokens,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }
    tokens = [event({"choices": [{"text": "x"}]})] * num_tokens
    return chunked(*tokens, event({"choices": [], "usage": usage}), b"data: [DONE]\n\n")


@dataclass
class StandIn:
    """What a running stand-in was asked, and what it says.

    Attributes:
        answer: Gives the bytes that answer a completion request.
        requests: Bodies of the completion requests so far.
        heads: Request lines and headers of all requests.
        num_cached_per_request: Prompt tokens that its metrics say it found, of 10 for each request.
    """

    answer: Callable[[dict[str, Any]], bytes]
    requests: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    has_metrics: bool = True
    num_cached_per_request: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and hang up."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        body = await reader.readexactly(length)
        writer.write(self._answer(head.split()[1], body))
        await writer.drain()
        writer.close()

    def _answer(self, path: str, body: bytes) -> bytes:
        if path.endswith("/v1/models"):
            return with_status("200 OK", b'{"data": [{"id": "first"}, {"id": "second"}]}')
        if path.endswith("/metrics"):
            if not self.has_metrics:
                return with_status("404 Not Found", b"")
            count = len(self.requests)
            page = METRICS.format(
                queue_s=0.5 * count,
                count=count,
                preemptions=3 * count,
                looked_up=10 * count,
                cached=self.num_cached_per_request * count,
            )
            return with_status("200 OK", page.encode())
        self.requests.append(json.loads(body))
        return self.answer(self.requests[-1])


@asynccontextmanager
async def stand_in(answer: Callable[[dict[str, Any]], bytes]) -> AsyncIterator[StandIn]:
    """Run a stand-in on a free port."""
    server = StandIn(answer)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
