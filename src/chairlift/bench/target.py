"""The server that is measured, and one streamed completion of it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chairlift.bench.http_client import Address, HttpError, read_body, stream_events


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-compatible server.

    Attributes:
        model: As requests name it.
        api_key: Empty: none is sent.
        ignore_eos: Ask for exactly as many tokens as the workload says (``ignore_eos``, which
            servers other than OpenAI's own understand).
    """

    address: Address
    model: str
    api_key: str = ""
    ignore_eos: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(slots=True)
class Measured:
    """What happened to one request, on the client's monotonic clock in seconds.

    Attributes:
        piece_s: When each piece with text or tokens came.
        num_output_tokens: As the server counts them.
        error: Why it failed; ``None`` if it did not.
    """

    sent_s: float
    piece_s: list[float] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Prompts:
    """Random token ids, so that no two prompts and no two runs share a prefix by accident.

    Attributes:
        seed: Of this run.
        past_last_token_id: Ids are from 100 to below this; within the server's vocabulary.
    """

    seed: int
    past_last_token_id: int

    def draw(self, number: int, num_tokens: int) -> list[int]:
        """The prompt of a request, by its number in the workload."""
        rng = random.Random(f"{self.seed}/{number}")
        first = min(100, self.past_last_token_id - 1)
        return [rng.randrange(first, self.past_last_token_id) for _ in range(num_tokens)]


def request_body(target: Target, prompt: list[int], num_output_tokens: int) -> bytes:
    """The JSON of one request for a streamed completion."""
    fields = {
        "model": target.model,
        "prompt": prompt,
        "max_tokens": num_output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.ignore_eos:
        fields["ignore_eos"] = True
    return json.dumps(fields).encode()


async def complete(target: Target, body: bytes) -> Measured:
    """Send one request and take the time of every piece of its answer; failures are recorded."""
    measured = Measured(time.monotonic())
    try:
        path = "/v1/completions"
        async for data in stream_events(target.address, path, body, target.headers):
            if data != b"[DONE]":
                _take_in(measured, json.loads(data), time.monotonic())
    except (HttpError, ValueError) as error:
        measured.error = str(error) or type(error).__name__
    if measured.error is None and not measured.num_output_tokens:
        measured.error = "the server reported no output tokens (usage in the last event)"
    if measured.error is None and not measured.piece_s:
        measured.error = "the answer had no text"
    return measured


def _take_in(measured: Measured, event: Mapping[str, Any], now_s: float) -> None:
    if "error" in event:
        measured.error = json.dumps(event["error"])[:300]
        return
    usage = event.get("usage")
    if usage:
        details = usage.get("prompt_tokens_details") or {}
        measured.num_prompt_tokens = int(usage.get("prompt_tokens") or 0)
        measured.num_output_tokens = int(usage.get("completion_tokens") or 0)
        measured.num_cached_tokens = int(details.get("cached_tokens") or 0)
    if event.get("choices"):
        measured.piece_s.append(now_s)


async def served_models(address: Address, headers: Mapping[str, str]) -> list[str]:
    """Names of the models that a server has.

    Raises:
        HttpError: It cannot be asked.
    """
    page = json.loads(await read_body(address, "/v1/models", headers))
    return [str(model["id"]) for model in page["data"]]
