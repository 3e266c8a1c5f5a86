"""Puts the HTTP API together around an engine."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

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
from chairlift.server.metrics import MetricsPage
from chairlift.server.middleware import REQUEST_ID_HEADER, ApiKeyMiddleware, RequestIdMiddleware
from chairlift.server.openapi import openapi_of
from chairlift.server.settings import ServerSettings
from chairlift.server.tenants import KeyRing
from chairlift.version import VERSION

_DESCRIPTION = (
    "OpenAI-compatible API of a Chairlift server. Fields that OpenAI's API does not have are named "
    "as in vLLM. A field that is not implemented is refused with a 400 that names it."
)


def create_app(engine: EngineClient, settings: ServerSettings) -> FastAPI:
    """Make the ASGI app that serves ``engine``; its ``state.context`` is what the routes share.

    The engine is neither started nor closed here.
    """
    app = FastAPI(
        title="Chairlift",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    # Not uvicorn's option of this name: requests that come past the proxy would then not be found.
    app.root_path = settings.root_path.rstrip("/")
    names = settings.served_model_name or (engine.model_name,)
    app.state.context = ServerContext(
        engine=engine,
        settings=settings,
        texts=TokenTexts(engine.tokenizer),
        metrics=MetricsPage(engine.stats, names[0]),
        door=Door(engine, settings.tenants),
    )
    for routes in (routes_generate, routes_tokenize, routes_requests, routes_admin, routes_page):
        app.include_router(routes.router)
    add_error_handlers(app)
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign]
    _add_middleware(app, settings)
    return app


def _add_middleware(app: FastAPI, settings: ServerSettings) -> None:
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
