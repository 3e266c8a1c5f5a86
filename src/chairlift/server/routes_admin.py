"""What the server says about itself: models, health, version, metrics."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import ServerContext, context_of
from chairlift.server.metrics import CONTENT_TYPE
from chairlift.server.openapi import MODEL_PARAMETER, answer_docs, health_docs
from chairlift.server.responses import ModelCard, ModelList, StatusResponse, VersionResponse
from chairlift.version import VERSION

router = APIRouter(tags=["server"])


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """A page for people, made from ``/openapi.json``; needs nothing from elsewhere."""
    return Response(files(__package__).joinpath("docs.html").read_bytes(), media_type="text/html")


@router.get("/v1/models", **answer_docs(ModelList))
async def list_models(request: Request) -> Response:
    """The served names."""
    context = context_of(request)
    cards = [_card(context, name) for name in context.model_names]
    return _json({"object": "list", "data": cards})


@router.get("/v1/models/{model_id:path}", **answer_docs(ModelCard, MODEL_PARAMETER))
async def get_model(request: Request) -> Response:
    """One served name."""
    context = context_of(request)
    return _json(_card(context, context.check_model(request.path_params["model_id"])))


@router.get("/health", **health_docs(StatusResponse))
@router.get("/ping", **health_docs(StatusResponse))
async def health(request: Request) -> Response:
    """Whether new requests are served: 200, or 503 once the engine is dead or the server ends."""
    context = context_of(request)
    if not context.engine.is_alive:
        return _json({"status": "dead"}, 503)
    if context.is_draining:
        return _json({"status": "draining"}, 503)
    return _json({"status": "ok"})


@router.get("/version", **answer_docs(VersionResponse))
async def get_version() -> Response:
    """The version of Chairlift."""
    return _json({"version": VERSION})


@router.get("/metrics", include_in_schema=True, response_class=Response)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format, under Chairlift's names and vLLM's."""
    return Response(context_of(request).metrics.render(), media_type=CONTENT_TYPE)


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
