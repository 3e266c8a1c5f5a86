"""Answers a request of its own before the first one of a client comes.

What the first request would pay for is done once, while the engine process is still loading: routes
and middleware are put together, validators, templates and encoders are made.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import Message

from chairlift.engine.front import Front
from chairlift.engine.rehearsal import rehearsal_engine
from chairlift.server.app import create_app
from chairlift.server.settings import ServerSettings

_NUM_TOKENS = 3


def rehearse(front: Front) -> list[int]:
    """Answer one streamed request and one that is not, on an event loop of this thread.

    Returns:
        HTTP status of each answer. A chat template may refuse what is sent: then it is not 200.
    """
    return asyncio.run(_rehearse(front))


async def _rehearse(front: Front) -> list[int]:
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async with rehearsal_engine(front) as engine:
        app = create_app(engine, ServerSettings())
        for stream in (True, False):
            path, body = _request(front, stream=stream)
            await app(_scope(path), _Receive(body), send)
    return statuses


def _request(front: Front, *, stream: bool) -> tuple[str, bytes]:
    """Path and body of a chat, or of a completion if the model has no chat template."""
    body: dict[str, Any] = {"max_tokens": _NUM_TOKENS, "temperature": 0, "stream": stream}
    if front.chat_template is None:
        return "/v1/completions", json.dumps(body | {"prompt": "Hello!"}).encode()
    messages = [{"role": "user", "content": "Hello!"}]
    return "/v1/chat/completions", json.dumps(body | {"messages": messages}).encode()


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }


class _Receive:
    """The client's side of a request: its body, and then nothing until it is dropped."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        """The next message (ASGI)."""
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
