"""What the server says about itself: models, health, version, metrics."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chairlift.server.context import ServerContext, context_of
from chairlift.version import VERSION

if TYPE_CHECKING:
    from chairlift.server.metrics import MetricsPage


async def docs(_request: Request) -> Response:
    """A page for people, made from ``/openapi.json``; needs nothing from elsewhere."""
    return Response(files(__package__).joinpath("docs.html").read_bytes(), media_type="text/html")


async def openapi(_request: Request) -> Response:
    """The description of the API, made when it is first asked for."""
    return Response(await asyncio.to_thread(_openapi_text), media_type="application/json")


async def list_models(request: Request) -> Response:
    """The served names."""
    context = context_of(request)
    cards = [_card(context, name) for name in context.model_names]
    return _json({"object": "list", "data": cards})


async def get_model(request: Request) -> Response:
    """One served name."""
    context = context_of(request)
    return _json(_card(context, context.check_model(request.path_params["model_id"])))


async def health(request: Request) -> Response:
    """Whether new requests are served: 200, or 503 once the engine is dead or the server ends.

    503 as well while nothing is heard of the engine for longer than ``--engine-timeout``.
    """
    context = context_of(request)
    if not context.engine.is_alive:
        return _json({"status": "dead"}, 503)
    if context.engine.silence_s > context.settings.engine_timeout_s:
        return _json({"status": "unresponsive"}, 503)
    if context.is_draining:
        return _json({"status": "draining"}, 503)
    return _json({"status": "ok"})


async def get_version(_request: Request) -> Response:
    """The version of Chairlift."""
    return _json({"version": VERSION})


async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format, under Chairlift's names and vLLM's."""
    page = (await asyncio.to_thread(_metrics_page))(context_of(request))
    return Response(page.render(), media_type=page.content_type)


def _metrics_page() -> type[MetricsPage]:
    # Imported here: Prometheus' client is not needed before somebody asks.
    from chairlift.server.metrics import MetricsPage

    return MetricsPage


@cache
def _openapi_text() -> bytes:
    # Imported here: only the description needs FastAPI, whose import would delay every start.
    from chairlift.server.openapi import openapi_document

    return to_json(openapi_document())


def _card(context: ServerContext, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": context.created,
        "owned_by": "chairlift",
        "root": context.engine.model_name,
        "parent": None,
        "max_model_len": context.engine.limits.max_model_len,
    }


def _json(content: dict[str, object], status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")


ROUTES = (
    Route("/docs", docs, methods=["GET"]),
    Route("/openapi.json", openapi, methods=["GET"]),
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model_id:path}", get_model, methods=["GET"]),
    Route("/health", health, methods=["GET"]),
    Route("/ping", health, methods=["GET"]),
    Route("/version", get_version, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
)
