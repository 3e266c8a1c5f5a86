"""The built-in page as it is delivered; ``tests/e2e/test_page.py`` uses it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

from chairlift.server.app import create_app
from chairlift.server.settings import ServerSettings


def client_of(engine: FakeEngine, settings: ServerSettings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(engine, settings))
    return httpx.AsyncClient(transport=transport, base_url="http://server")


class PageReader(HTMLParser):
    """Collects what the page loads and what it holds inline.

    Attributes:
        addresses: Values of all ``src`` and ``href``.
        inline: Content of ``style`` and ``script``, by tag.
        handlers: Attributes that are code or style, which a strict policy forbids.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: dict[str, str] = {}
        self.handlers: list[str] = []
        self._tag = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        for name, value in attrs:
            if name in ("src", "href"):
                self.addresses.append(value or "")
            if name.startswith("on") or name == "style":
                self.handlers.append(f"{tag} {name}")

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag in ("style", "script"):
            self.inline[self._tag] = self.inline.get(self._tag, "") + data


async def read_page(client: httpx.AsyncClient) -> tuple[httpx.Response, PageReader]:
    answer = await client.get("/")
    if answer.status_code != 200:
        raise AssertionError(answer.text)
    return answer, PageReader(answer.text)


async def test_the_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    _, page = await read_page(client)
    assert [a for a in page.addresses if not a.startswith("data:")] == ["docs", "metrics"]
    assert page.handlers == []


@pytest.mark.parametrize("tag", ["style", "script"])
async def test_the_page_may_use_only_its_own_script_and_style(
    client: httpx.AsyncClient, tag: str
) -> None:
    answer, page = await read_page(client)
    policy = dict(p.split(" ", 1) for p in answer.headers["content-security-policy"].split("; "))
    digest = base64.b64encode(hashlib.sha256(page.inline[tag].encode()).digest()).decode()
    assert policy["default-src"] == "'none'"
    assert policy[f"{tag}-src"] == f"'sha256-{digest}'"


async def test_the_page_reads_metrics_that_exist(client: httpx.AsyncClient) -> None:
    _, page = await read_page(client)
    names = set(re.findall(r"\b(?!num_requests_\b)\w+_(?:total|seconds)\b", page.inline["script"]))
    assert {"generation_tokens_total", "time_to_first_token_seconds"} <= names
    text = (await client.get("/metrics")).text
    shown = set(re.findall(r"^chairlift:(\w+?)(?:_count)?\{", text, re.MULTILINE))
    assert names | {"num_requests_running", "num_requests_waiting", "kv_blocks"} <= shown


async def test_addresses_stay_relative_without_a_root_path(client: httpx.AsyncClient) -> None:
    assert "<base" not in (await client.get("/")).text


@pytest.mark.parametrize("root_path", ["/llm", "/llm/"])
async def test_addresses_lead_below_the_root_path(engine: FakeEngine, root_path: str) -> None:
    async with client_of(engine, ServerSettings(root_path=root_path)) as client:
        _, page = await read_page(client)
    assert "/llm/" in page.addresses


@pytest.mark.parametrize("address", ["/v1/models", "/llm/v1/models", "/llm/"])
async def test_a_root_path_may_have_been_removed_or_not(engine: FakeEngine, address: str) -> None:
    async with client_of(engine, ServerSettings(root_path="/llm/")) as client:
        assert (await client.get(address)).status_code == 200


async def test_a_root_path_cannot_write_into_the_page(engine: FakeEngine) -> None:
    async with client_of(engine, ServerSettings(root_path='/"><script>')) as client:
        text = (await client.get("/")).text
    assert text.count("<script") == 1


async def test_the_page_needs_no_key(engine: FakeEngine) -> None:
    async with client_of(engine, ServerSettings(api_key=("one",))) as client:
        assert (await client.get("/")).status_code == 200
