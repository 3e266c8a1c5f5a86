"""Puts the HTTP API together around an engine."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from chairlift.engine.tenants import KeyRing
from chairlift.server import (
    routes_admin,
    routes_generate,
    routes_page,
    routes_requests,
    routes_tokenize,
)
from chairlift.server.context import ServerContext
from chairlift.server.door import Door
from chairlift.server.engine_client import EngineClient
from chairlift.server.error_handlers import add_error_handlers
from chairlift.server.logprobs_format import TokenTexts
from chairlift.server.middleware import REQUEST_ID_HEADER, ApiKeyMiddleware, RequestIdMiddleware
from chairlift.server.settings import ServerSettings

_ROUTES = (
    *routes_generate.ROUTES,
    *routes_tokenize.ROUTES,
    *routes_requests.ROUTES,
    *routes_admin.ROUTES,
    *routes_page.ROUTES,
)


class App(Starlette):
    """The ASGI app.

    Args:
        root_path: Path prefix that a reverse proxy removes. Not uvicorn's option of this name:
            requests that come past the proxy would then not be found.
    """

    def __init__(self, root_path: str) -> None:
        super().__init__(routes=_ROUTES)
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if self._root_path:
            scope["root_path"] = self._root_path
        await super().__call__(scope, receive, send)


def create_app(engine: EngineClient, settings: ServerSettings) -> App:
    """Make the ASGI app that serves ``engine``; its ``state.context`` is what the routes share.

    The engine is neither started nor closed here.
    """
    app = App(settings.root_path.rstrip("/"))
    app.state.context = ServerContext(
        engine=engine,
        settings=settings,
        texts=TokenTexts(engine.tokenizer),
        door=Door(engine, settings.tenants),
    )
    add_error_handlers(app)
    _add_middleware(app, settings)
    return app


def _add_middleware(app: App, settings: ServerSettings) -> None:
    """The last one added is the outermost: every answer carries its id and its CORS headers."""
    keys = KeyRing(settings.api_key, settings.tenants)
    if keys:
        app.add_middleware(ApiKeyMiddleware, keys=keys)
    app.add_middleware(RequestIdMiddleware)
    if settings.allowed_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origin),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[REQUEST_ID_HEADER, "retry-after"],
        )
