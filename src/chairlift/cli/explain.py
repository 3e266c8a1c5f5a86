"""``chairlift explain``: why a request of a running server waits, and what happened to it."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.errors import ConfigError, EngineError, RequestNotFoundError

_TIMEOUT_S = 30.0


def explain(
    request_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Of the answer, or the X-Request-Id that was sent."),
    ] = None,
    *,
    url: Annotated[
        str, typer.Option(envvar="CHAIRLIFT_URL", show_envvar=False, help="Where the server is.")
    ] = "http://127.0.0.1:8000",
    api_key: Annotated[
        str,
        typer.Option(envvar="CHAIRLIFT_API_KEY", show_envvar=False, help="Key of the server."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Say why request ID waits and what has happened to it; without ID, which requests there are.

    Examples:

    \b
      chairlift explain
      chairlift explain chatcmpl-3f0c --url http://gpu-box:8000
      chairlift explain my-own-id --json
    """
    path = "/v1/requests" if request_id is None else f"/v1/requests/{quote(request_id, safe='')}"
    answer = fetch(url.rstrip("/") + path, api_key)
    if as_json:
        print(json.dumps(answer, indent=2))
    elif request_id is None:
        print("\n".join(overview(answer["data"])))
    else:
        for choice in answer["choices"]:
            print("\n".join(story(choice)))


def fetch(url: str, api_key: str) -> dict[str, Any]:
    """Get JSON from a server.

    Raises:
        ConfigError: There is no such server, or the key is not known.
        RequestNotFoundError: There is no such request.
        EngineError: The server fails.
    """
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=_TIMEOUT_S) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
    except HTTPError as error:
        with error:
            message = _message(error)
        if error.code == 404:
            raise RequestNotFoundError(message) from None
        raise (ConfigError if error.code < 500 else EngineError)(message) from None
    except (URLError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no answer from {url}: {reason}; is --url right?") from None


def _message(error: HTTPError) -> str:
    try:
        message: str = json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"the server answers {error.code} {error.reason}"
    return message


def overview(choices: list[dict[str, Any]]) -> list[str]:
    """One line per choice."""
    if not choices:
        return ["no request waits or runs"]
    width = max(len(choice["id"]) for choice in choices)
    return [f"{choice['id']:<{width}}  {_state(choice)}" for choice in choices]


def _state(choice: dict[str, Any]) -> str:
    words = f"{choice['state']} {choice['age_s']:.1f} s"
    if choice["state"] != "finished" and choice["wait"] is None:
        return f"{words}, {choice['completion_tokens']} tokens, {choice['blocks']} KV blocks"
    if choice["wait"] is None:
        return f"{choice['finish_reason']}, {choice['completion_tokens']} tokens"
    place = choice["position"]
    before = "" if place is None else f", {place} before it"
    return f"{words}{before}: {choice['wait']['text']}"


def story(choice: dict[str, Any]) -> list[str]:
    """All about one choice: what it is, why it waits, what happened when."""
    lines = [
        f"{choice['id']}: {_state(choice)}",
        f"  prompt {choice['prompt_tokens']} tokens, {choice['cached_tokens']} of them cached; "
        f"output {choice['completion_tokens']}; preempted {choice['preemptions']} times",
    ]
    if choice["wait"] is not None:
        wait = choice["wait"]
        lines.append(f"  waits for {wait['limit']}: has {wait['have']}, needs {wait['need']}")
    for event in choice["events"]:
        rest = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in event.items()
            if name not in ("at_s", "kind")
        )
        lines.append(f"  {event['at_s']:>10.3f} s  {event['kind'].replace('_', ' '):<11}  {rest}")
    return [line.rstrip() for line in lines]
