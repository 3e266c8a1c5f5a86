"""The streamed answer: server-sent events as they come, to the end or until nobody listens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chairlift.server.answer_writer import DONE_EVENT, event
from chairlift.server.connection import run_while_connected
from chairlift.server.error_handlers import error_content, error_response, log_unexpected


class EventStream(Response):
    """Sends events from a generator.

    The status and headers go out with the first event, so that a request that fails before has
    a status that says so. An error after that is an event of its own; ``[DONE]`` comes last in
    either case. When the client leaves, the generator is closed.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        try:
            async with aclosing(self._events):
                await run_while_connected(receive, self._send_all(scope, receive, send))
        except ClientDisconnect:
            return

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False
        try:
            async for events in self._events:
                if not events:
                    continue
                if not is_started:
                    await self._send_start(send)
                    is_started = True
                await send({"type": "http.response.body", "body": events, "more_body": True})
        except ClientDisconnect:
            raise
        except Exception as error:
            log_unexpected(error)
            if not is_started:
                await error_response(error)(scope, receive, send)
                return
            last = event(error_content(error)) + DONE_EVENT
            await send({"type": "http.response.body", "body": last, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_start(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
