"""Pure ASGI middleware: request ids and API keys, without a task or a copy per message."""

from __future__ import annotations

from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chairlift.engine.tenants import KeyRing
from chairlift.errors import RequestError
from chairlift.server.convert import check_request_id
from chairlift.server.error_handlers import AuthenticationError, error_response

REQUEST_ID_HEADER = "x-request-id"

# What probes, scrapers and browsers read stays open; everything that shows or costs something not.
_OPEN_PATHS = frozenset({"/health", "/ping", "/version", "/metrics", "/docs", "/openapi.json", "/"})


class RequestIdMiddleware:
    """Gives each request an id, the client's own if it sent one, and writes it into the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER)
        try:
            request_id = check_request_id(given, REQUEST_ID_HEADER) if given else uuid4().hex
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        scope.setdefault("state", {})["request_id"] = request_id
        await self._app(scope, receive, send_with_id)


class ApiKeyMiddleware:
    """Refuses requests without a known key (``Authorization: Bearer KEY``).

    Writes the name of the tenant whose key it is into the request's state.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] == "http" and not self._may_pass(scope):
            error = AuthenticationError(
                "this server needs an API key; send the header 'Authorization: Bearer KEY'"
            )
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in _OPEN_PATHS or scope["method"] == "OPTIONS":
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        owner = self._keys.owner(key.strip()) if scheme.lower() == "bearer" else None
        if owner is None:
            return False
        scope.setdefault("state", {})["tenant"] = owner
        return True
