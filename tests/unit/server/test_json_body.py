"""Only strict, bounded JSON objects get past the door."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from chairlift.errors import InvalidParameterError
from chairlift.server.json_body import parse_json_object
from chairlift.server.settings import ServerSettings


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b'{"prompt": "a"} x',
        b"{'prompt': 'a'}",
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "emoji \\ud83d"}',
        b'{"prompt": "\\ude00"}',
        b'{"\\ud83d": 1}',
        b'{"prompt": "a\x00b"}',
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
        b'"a string"',
        b"[1, 2]",
        b"null",
        '{"prompt": "a"}'.encode("utf-16"),
    ],
)
def test_what_is_no_strict_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidParameterError):
        parse_json_object(body)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_a_non_finite_number_is_refused_by_the_name_of_its_field(literal: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        parse_json_object(b'{"n": 1, "logit_bias": {"5": ' + literal.encode() + b"}}")
    assert caught.value.param == "logit_bias.5"


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert parse_json_object(b'{"prompt": "\\ud83d\\ude00"}') == {"prompt": "\N{GRINNING FACE}"}


def test_nesting_up_to_a_hundred_is_read() -> None:
    assert parse_json_object(b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}")


class TestBodySize:
    @pytest.fixture
    def settings(self) -> ServerSettings:
        return ServerSettings(max_body_bytes=1024)

    async def test_a_body_of_the_limit_is_read(self, client: httpx.AsyncClient) -> None:
        body = b'{"prompt": "' + b"a" * (1024 - 14) + b'"}'
        answer = await client.post("/v1/completions", content=body)
        assert (len(body), answer.status_code) == (1024, 200)

    async def test_a_longer_body_is_refused_and_not_retried(
        self, client: httpx.AsyncClient
    ) -> None:
        answer = await client.post("/v1/completions", content=b'{"prompt": "' + b"a" * 1025)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"
        assert answer.headers["x-should-retry"] == "false"

    async def test_a_longer_body_without_declared_length_is_refused(
        self, client: httpx.AsyncClient
    ) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"a" * 300

        answer = await client.post("/v1/completions", content=parts())
        assert answer.status_code == 413

    async def test_an_announced_long_body_is_refused_before_it_is_sent(
        self, client: httpx.AsyncClient
    ) -> None:
        async def parts() -> AsyncIterator[bytes]:
            raise AssertionError("the server asked for the body")
            yield b""

        headers = {"content-length": "100000000", "expect": "100-continue"}
        answer = await client.post("/v1/completions", content=parts(), headers=headers)
        assert answer.status_code == 413


async def test_the_content_type_does_not_matter(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/completions", content=b'{"prompt": "a"}', headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 200
