"""Reads a request body: bounded, and strict about what JSON is."""

from __future__ import annotations

import math
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from chairlift.errors import InvalidParameterError, RequestError

# A body that is too large is read on and thrown away up to this size, because many clients send
# all of it before they look for an answer and would otherwise see a broken connection, not a 413.
MAX_DISCARDED_BYTES = 256 * 1024 * 1024


class BodyTooLargeError(RequestError):
    """The request body is longer than the server takes."""

    code = "request_too_large"


async def read_json_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """Read the whole body and parse it as one JSON object.

    Never holds more than ``max_bytes`` of it.

    Raises:
        BodyTooLargeError: The body is longer than ``max_bytes``.
        InvalidParameterError: Not UTF-8, not JSON, or not an object.
        ClientDisconnect: The client left while sending.
    """
    return parse_json_object(await _read_body(request, max_bytes))


async def _read_body(request: Request, max_bytes: int) -> bytes:
    too_large = BodyTooLargeError(
        f"the request body is larger than {max_bytes} bytes; send less, or start the server with "
        "a larger --max-body-bytes"
    )
    declared = request.headers.get("content-length", "")
    oversized = declared.isascii() and declared.isdigit() and int(declared) > max_bytes
    if oversized and request.headers.get("expect", "").lower() == "100-continue":
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in _body_parts(request):
        size += len(part)
        if size > MAX_DISCARDED_BYTES:
            break
        if size > max_bytes or oversized:
            parts.clear()
            oversized = True
        else:
            parts.append(part)
    if oversized or size > max_bytes:
        raise too_large
    return b"".join(parts)


async def _body_parts(request: Request) -> Any:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse one JSON object (RFC 8259: UTF-8, no NaN, no lone surrogates, at most 200 deep).

    Raises:
        InvalidParameterError: It is something else.
    """
    if not body.strip():
        raise InvalidParameterError("the request body is empty; send a JSON object")
    try:
        parsed = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise _explain(body, error) from None
    if not isinstance(parsed, dict):
        raise InvalidParameterError(
            f"the request body must be a JSON object, got {_json_type(parsed)}"
        )
    return parsed


def _explain(body: bytes, error: ValueError) -> InvalidParameterError:
    """Name the field when the only fault is a NaN or Infinity, which Python's json writes."""
    try:
        parsed = from_json(body, allow_inf_nan=True)
    except ValueError:
        return InvalidParameterError(f"the request body is not valid JSON: {error}")
    path, value = _first_non_finite(parsed, "") or ("the request body", "NaN")
    return InvalidParameterError(
        f"{path} must be a finite number, got {value}; JSON has no NaN or Infinity",
        param=path,
    )


def _first_non_finite(value: Any, path: str) -> tuple[str, Any] | None:
    if isinstance(value, float) and not math.isfinite(value):
        return path, value
    children: Any = ()
    if isinstance(value, dict):
        children = ((f"{path}.{key}" if path else str(key), item) for key, item in value.items())
    elif isinstance(value, list):
        children = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    found = (_first_non_finite(item, child_path) for child_path, item in children)
    return next((hit for hit in found if hit), None)


def _json_type(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
