"""The one table from exception to HTTP answer, and the envelope of OpenAI's API around it."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chairlift.errors import (
    ChairliftError,
    EngineDeadError,
    EngineDrainingError,
    EngineOverloadedError,
    ModelNotFoundError,
    QueueTimeoutError,
    QuotaExceededError,
    RequestError,
    RequestFailedError,
    RequestNotFoundError,
    StartTooLateError,
)
from chairlift.server.json_body import BodyTooLargeError

_LOGGER = logging.getLogger("chairlift.server")
_CLIENT_CLOSED_REQUEST = 499


class AuthenticationError(RequestError):
    """A request brings no API key, or one that is not known."""

    code = "invalid_api_key"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How a class of exceptions is answered: HTTP status, and ``type`` and ``code`` in the body."""

    status: int
    type: str
    code: str | None = None


# Looked up along the exception's class hierarchy, so the more general rows serve as defaults.
_KINDS: dict[type[Exception], ErrorKind] = {
    RequestError: ErrorKind(400, "invalid_request_error"),
    ModelNotFoundError: ErrorKind(404, "invalid_request_error"),
    RequestNotFoundError: ErrorKind(404, "invalid_request_error"),
    AuthenticationError: ErrorKind(401, "invalid_request_error"),
    BodyTooLargeError: ErrorKind(413, "invalid_request_error"),
    EngineOverloadedError: ErrorKind(429, "rate_limit_error", "engine_overloaded"),
    QuotaExceededError: ErrorKind(429, "rate_limit_error", "quota_exceeded"),
    StartTooLateError: ErrorKind(429, "rate_limit_error", "start_too_late"),
    QueueTimeoutError: ErrorKind(503, "service_unavailable_error", "queue_timeout"),
    EngineDrainingError: ErrorKind(503, "service_unavailable_error", "server_draining"),
    EngineDeadError: ErrorKind(500, "server_error", "engine_dead"),
    RequestFailedError: ErrorKind(500, "server_error", "request_failed"),
    Exception: ErrorKind(500, "server_error", "internal_error"),
}
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def kind_of(error: Exception) -> ErrorKind:
    """The row of the table for ``error``."""
    return next(_KINDS[cls] for cls in type(error).__mro__ if cls in _KINDS)


def error_content(error: Exception) -> dict[str, Any]:
    """``{"error": {message, type, param, code}}`` for ``error``; internals are not shown."""
    kind = kind_of(error)
    shown = str(error) if isinstance(error, ChairliftError) else "internal server error"
    return _envelope(
        shown,
        kind.type,
        param=getattr(error, "param", None),
        code=getattr(error, "code", None) or kind.code,
    )


def error_response(error: Exception) -> Response:
    """The whole answer to a request that ended in ``error`` before its first byte was sent."""
    kind = kind_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, EngineOverloadedError | QueueTimeoutError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif isinstance(error, EngineDrainingError):
        headers["retry-after"] = "1"
    elif kind.status < 500:
        # The openai client and others would retry some statuses by themselves, in vain.
        headers["x-should-retry"] = "false"
    if kind.status == 401:
        headers["www-authenticate"] = "Bearer"
    if kind.status == 413:
        # The rest of the body may still be on its way and must not be read as a request.
        headers["connection"] = "close"
    return _json_response(error_content(error), kind.status, headers)


def add_error_handlers(app: Starlette) -> None:
    """Make every error of ``app`` an answer in OpenAI's shape."""
    app.add_exception_handler(ChairliftError, _handle)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle)


def log_unexpected(error: Exception) -> None:
    """Log what is our fault, with its traceback; a caller's mistake is not worth a line."""
    if kind_of(error).status >= 500 and not isinstance(error, EngineDeadError | RequestFailedError):
        _LOGGER.error("request failed", exc_info=error)


async def _handle(_request: Request, error: Exception) -> Response:
    return error_response(error)


async def _handle_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    messages = {
        404: f"there is no {request.url.path}; GET /docs lists what there is",
        405: f"{request.url.path} does not take {request.method}",
    }
    message = messages.get(status, str(getattr(error, "detail", "")))
    headers = dict(getattr(error, "headers", None) or {}) | {"x-should-retry": "false"}
    content = _envelope(message, "invalid_request_error", code=_HTTP_CODES.get(status))
    return _json_response(content, status, headers)


async def _handle_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


def _envelope(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _json_response(content: dict[str, Any], status: int, headers: dict[str, str]) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")
