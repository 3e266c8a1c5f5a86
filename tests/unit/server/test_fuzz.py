"""Whatever JSON is sent, the answer is a success or a refusal, never a failure of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.server.fake_engine import FakeEngine

from chairlift.server.app import create_app
from chairlift.server.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    Schema,
    TokenizeRequest,
)
from chairlift.server.responses import ErrorResponse
from chairlift.server.settings import ServerSettings

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "x"]), "content": TEXTS | VALUES},
        optional={"name": VALUES, "tool_calls": VALUES},
    ),
    max_size=3,
)
BODIES: dict[str, tuple[type[Schema], dict[str, st.SearchStrategy[Any]]]] = {
    "/v1/completions": (CompletionRequest, {"prompt": TEXTS | st.lists(st.integers()) | VALUES}),
    "/v1/chat/completions": (ChatCompletionRequest, {"messages": MESSAGES | VALUES}),
    "/tokenize": (TokenizeRequest, {"prompt": TEXTS, "messages": MESSAGES}),
    "/detokenize": (DetokenizeRequest, {"tokens": st.lists(st.integers(0, 400)) | VALUES}),
}


@pytest.mark.parametrize("path", sorted(BODIES))
def test_no_json_body_makes_the_server_fail(path: str) -> None:
    schema, likely = BODIES[path]
    names = st.sampled_from(sorted(schema.model_fields.keys() - {"model"})) | TEXTS
    others = st.dictionaries(names, VALUES | st.integers(-2, 9), max_size=3)
    app = create_app(FakeEngine(), ServerSettings())
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    async def post(body: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.post(path, json=body)

    with asyncio.Runner() as runner:

        @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(body=st.builds(dict.__or__, st.fixed_dictionaries({}, optional=likely), others))
        def check(body: dict[str, Any]) -> None:
            answer = runner.run(post(body))
            assert answer.status_code in (200, 400), answer.text
            if answer.status_code == 400:
                ErrorResponse.model_validate_json(answer.content)

        check()
