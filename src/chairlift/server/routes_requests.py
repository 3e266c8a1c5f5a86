"""Requests as the engine sees them: which there are, why they wait, and how to end one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chairlift.errors import InvalidParameterError, RequestNotFoundError
from chairlift.outputs import RequestReport
from chairlift.server.context import context_of, tenant_of

STATES = ("waiting", "running", "preempted", "finished")
_LIVE = STATES[:3]


async def list_requests(request: Request) -> Response:
    """The choices that wait or run, those of one's own tenant; or those in one ``state``."""
    state = request.query_params.get("state")
    if state is not None and state not in STATES:
        raise InvalidParameterError(
            f"state must be one of {', '.join(STATES)}, got {state[:40]!r}", param="state"
        )
    wanted = _LIVE if state is None else (state,)
    reports = await _own_reports(request, None)
    data = [_shown(report) for report in reports if report.state in wanted]
    return _json({"object": "list", "data": data})


async def get_request(request: Request) -> Response:
    """What has happened to a request, and why it waits now."""
    request_id = request.path_params["request_id"]
    reports = await _find(request, request_id)
    choices = [_shown(report) for report in reports]
    return _json({"id": request_id, "object": "request", "choices": choices})


async def delete_request(request: Request) -> Response:
    """End a request; whoever waits for its answer gets an error that says so."""
    engine = context_of(request).engine
    request_id = request.path_params["request_id"]
    live = [r.request_id for r in await _find(request, request_id) if r.state != "finished"]
    engine.abort_choices(live)
    reports = await engine.inspect(request_id)
    aborted = [r for r in reports if r.request_id in live and r.finish_reason == "abort"]
    return _json(
        {
            "id": request_id,
            "object": "request.deleted",
            "deleted": bool(aborted),
            "aborted_choices": len(aborted),
            "completion_tokens": sum(report.num_output_tokens for report in aborted),
        }
    )


async def _find(request: Request, request_id: str) -> Sequence[RequestReport]:
    reports = await _own_reports(request, request_id)
    if not reports:
        raise RequestNotFoundError(
            f"no request {request_id[:200]!r} is alive or among those that ended last; "
            "GET /v1/requests lists those alive",
            param="request_id",
        )
    return reports


async def _own_reports(request: Request, request_id: str | None) -> Sequence[RequestReport]:
    """Reports that the holder of the request's key may see: a tenant, those of its own."""
    tenant = tenant_of(request)
    reports = await context_of(request).engine.inspect(request_id)
    return [report for report in reports if tenant in ("", report.tenant)]


def _shown(report: RequestReport) -> dict[str, Any]:
    wait = report.wait
    return {
        "id": report.request_id,
        "state": report.state,
        "finish_reason": report.finish_reason,
        "tenant": report.tenant,
        "priority": report.priority,
        "age_s": round(time.monotonic() - report.arrival_s, 6),
        "prompt_tokens": report.num_prompt_tokens,
        "cached_tokens": report.num_cached_tokens,
        "computed_tokens": report.num_computed_tokens,
        "completion_tokens": report.num_output_tokens,
        "preemptions": report.num_preemptions,
        "blocks": report.num_blocks,
        "free_blocks": report.num_free_blocks,
        "position": report.position,
        "wait": None
        if wait is None
        else {"limit": wait.limit, "have": wait.have, "need": wait.need, "text": wait.text},
        "events": [
            {"at_s": round(event.at_s, 6), "kind": event.kind, **event.details}
            for event in report.events
        ],
    }


def _json(content: dict[str, object]) -> Response:
    return Response(to_json(content), media_type="application/json")


ROUTES = (
    Route("/v1/requests", list_requests, methods=["GET"]),
    Route("/v1/requests/{request_id:path}", get_request, methods=["GET"]),
    Route("/v1/requests/{request_id:path}", delete_request, methods=["DELETE"]),
)
