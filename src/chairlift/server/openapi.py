"""What ``/openapi.json`` says; the routes know nothing of it.

FastAPI makes the document out of a table here. Nothing else uses it: routes read and check bodies
by themselves, and serving goes without its import, which takes as long as loading a small model.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from chairlift.server import routes_admin, routes_generate, routes_requests, routes_tokenize
from chairlift.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from chairlift.server.responses import (
    ChatCompletionChunk,
    ChatCompletionResponse,
    ChoiceReportList,
    CompletionResponse,
    DeletedRequest,
    DetokenizeResponse,
    ErrorResponse,
    ModelCard,
    ModelList,
    RequestDetails,
    StatusResponse,
    TokenizeResponse,
    VersionResponse,
)
from chairlift.version import VERSION

_DESCRIPTION = (
    "OpenAI-compatible API of a Chairlift server. Fields that OpenAI's API does not have are named "
    "as in vLLM. A field that is not implemented is refused with a 400 that names it."
)

_REFERENCE = "#/components/schemas/"
_BODIES = (ChatCompletionRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest)

_COMMON_ERRORS = {
    401: "The API key is missing or wrong.",
    500: "The server or its engine failed.",
}
_BODY_ERRORS = {
    400: "A field is wrong; `param` names it.",
    404: "The model is not served here.",
    413: "The body is too large.",
}
_LOAD_ERRORS = {
    429: "The queue is full; `Retry-After` says when to come back.",
    503: "The server is shutting down.",
}

_NO_MODEL = _BODY_ERRORS[404]
_NO_REQUEST = "No such request is alive or has ended lately."

Docs = dict[str, Any]


def openapi_document() -> dict[str, Any]:
    """The whole document."""
    app = FastAPI(title="Chairlift", version=VERSION, description=_DESCRIPTION)
    for tag, routes in _TAGS:
        for route in routes:
            for method in sorted(route.methods or ()):
                if docs := _DOCS.get((method, route.path)):
                    app.add_api_route(
                        route.path, route.endpoint, methods=[method], tags=[tag], **docs
                    )
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    models: list[tuple[type[BaseModel], Any]] = [(body, "validation") for body in _BODIES]
    models.append((ChatCompletionChunk, "serialization"))
    _, definitions = models_json_schema(models, ref_template=_REFERENCE + "{model}")
    document["components"]["schemas"] |= definitions["$defs"]
    return document


def _answer(
    answer: type[BaseModel], parameter: dict[str, Any] | None = None, not_found: str = ""
) -> Docs:
    """Arguments of a route without a body."""
    errors = _COMMON_ERRORS | ({404: not_found} if not_found else {})
    extra = {"parameters": [parameter]} if parameter else None
    return {"responses": _responses(answer, errors), "openapi_extra": extra}


def _health(answer: type[BaseModel]) -> Docs:
    """Arguments of a route that says whether requests are served."""
    unavailable = {"model": answer, "description": "New requests are not served."}
    return {"responses": {200: {"model": answer}, 503: unavailable}}


def _body(body: type[BaseModel], answer: type[BaseModel]) -> Docs:
    """Arguments of a route with a JSON body."""
    return {
        "responses": _responses(answer, _COMMON_ERRORS | _BODY_ERRORS),
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": _REFERENCE + body.__name__}}},
            }
        },
    }


def _generation(body: type[BaseModel], answer: type[BaseModel], chunk: type[BaseModel]) -> Docs:
    """Arguments of a route that generates, whole or streamed."""
    docs = _body(body, answer)
    docs["responses"] |= _error_responses(_LOAD_ERRORS)
    docs["responses"][200]["content"] = {
        "text/event-stream": {"schema": {"$ref": _REFERENCE + chunk.__name__}}
    }
    return docs


def _responses(answer: type[BaseModel], errors: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": answer}} | _error_responses(errors)


def _error_responses(errors: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorResponse, "description": description}
        for status, description in sorted(errors.items())
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


_TAGS = (
    ("generation", routes_generate.ROUTES),
    ("tokens", routes_tokenize.ROUTES),
    ("requests", routes_requests.ROUTES),
    ("server", routes_admin.ROUTES),
)
_MODEL_ID, _REQUEST_ID = _path_parameter("model_id"), _path_parameter("request_id")
_STATE = {
    "name": "state",
    "in": "query",
    "schema": {"type": "string", "enum": routes_requests.STATES},
}
_DOCS: dict[tuple[str, str], Docs] = {
    ("POST", "/v1/completions"): _generation(
        CompletionRequest, CompletionResponse, CompletionResponse
    ),
    ("POST", "/v1/chat/completions"): _generation(
        ChatCompletionRequest, ChatCompletionResponse, ChatCompletionChunk
    ),
    ("POST", "/tokenize"): _body(TokenizeRequest, TokenizeResponse),
    ("POST", "/detokenize"): _body(DetokenizeRequest, DetokenizeResponse),
    ("GET", "/v1/requests"): _answer(ChoiceReportList, _STATE),
    ("GET", "/v1/requests/{request_id:path}"): _answer(RequestDetails, _REQUEST_ID, _NO_REQUEST),
    ("DELETE", "/v1/requests/{request_id:path}"): _answer(DeletedRequest, _REQUEST_ID, _NO_REQUEST),
    ("GET", "/v1/models"): _answer(ModelList),
    ("GET", "/v1/models/{model_id:path}"): _answer(ModelCard, _MODEL_ID, _NO_MODEL),
    ("GET", "/health"): _health(StatusResponse),
    ("GET", "/ping"): _health(StatusResponse),
    ("GET", "/version"): _answer(VersionResponse),
    ("GET", "/metrics"): {"response_class": Response},
}
