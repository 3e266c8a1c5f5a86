"""What ``/openapi.json`` says about bodies and answers that the routes handle by themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from chairlift.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from chairlift.server.responses import ChatCompletionChunk, ErrorResponse

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
_NOT_FOUND = "No such request is alive or has ended lately."
_LOAD_ERRORS = {
    429: "The queue is full; `Retry-After` says when to come back.",
    503: "The server is shutting down.",
}

MODEL_PARAMETER: dict[str, Any] = {
    "parameters": [
        {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
}

REQUEST_PARAMETER: dict[str, Any] = {
    "parameters": [
        {"name": "request_id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
}


def answer_docs(answer: type[BaseModel], extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Arguments of a route without a body."""
    not_found = _NOT_FOUND if extra is REQUEST_PARAMETER else _BODY_ERRORS[404]
    errors = _COMMON_ERRORS | ({404: not_found} if extra else {})
    return {"responses": _responses(answer, errors), "openapi_extra": extra}


def health_docs(answer: type[BaseModel]) -> dict[str, Any]:
    """Arguments of a route that says whether requests are served."""
    unavailable = {"model": answer, "description": "New requests are not served."}
    return {"responses": {200: {"model": answer}, 503: unavailable}}


def body_docs(body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
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


def generation_docs(
    body: type[BaseModel], answer: type[BaseModel], chunk: type[BaseModel]
) -> dict[str, Any]:
    """Arguments of a route that generates, whole or streamed."""
    docs = body_docs(body, answer)
    docs["responses"] |= _error_responses(_LOAD_ERRORS)
    docs["responses"][200]["content"] = {
        "text/event-stream": {"schema": {"$ref": _REFERENCE + chunk.__name__}}
    }
    return docs


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The whole document of ``app``, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        models: list[tuple[type[BaseModel], Any]] = [(body, "validation") for body in _BODIES]
        models.append((ChatCompletionChunk, "serialization"))
        _, definitions = models_json_schema(models, ref_template=_REFERENCE + "{model}")
        document["components"]["schemas"] |= definitions["$defs"]
        app.openapi_schema = document
    return app.openapi_schema


def _responses(answer: type[BaseModel], errors: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": answer}} | _error_responses(errors)


def _error_responses(errors: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorResponse, "description": description}
        for status, description in sorted(errors.items())
    }
