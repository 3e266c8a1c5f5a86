"""Models, health, version, tokens, documentation, keys and origins."""

from __future__ import annotations

import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.fake_engine import FakeEngine

from chairlift.errors import ConfigError
from chairlift.server.app import create_app
from chairlift.server.responses import (
    DetokenizeResponse,
    ModelCard,
    ModelList,
    TokenizeResponse,
)
from chairlift.server.settings import ServerSettings
from chairlift.version import VERSION


def client_of(engine: FakeEngine, settings: ServerSettings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(engine, settings))
    return httpx.AsyncClient(transport=transport, base_url="http://server")


async def test_the_model_is_listed_and_found(client: httpx.AsyncClient) -> None:
    listed = ModelList.model_validate_json((await client.get("/v1/models")).content)
    found = ModelCard.model_validate_json((await client.get("/v1/models/fake")).content)
    assert listed.data == [found]
    assert (found.id, found.max_model_len) == ("fake", 512)


async def test_served_names_replace_the_model_s_own(engine: FakeEngine) -> None:
    settings = ServerSettings(served_model_name=("org/first", "second"))
    async with client_of(engine, settings) as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [card["id"] for card in listed] == ["org/first", "second"]
        assert (await client.get("/v1/models/org/first")).status_code == 200
        assert (await client.get("/v1/models/fake")).status_code == 404
        for asked, reported in ((None, "org/first"), ("second", "second")):
            body = {"prompt": "a", "model": asked}
            answer = await client.post("/v1/completions", json=body)
            assert answer.json()["model"] == reported


@pytest.mark.parametrize("path", ["/health", "/ping"])
async def test_health_is_good_until_the_engine_dies(
    client: httpx.AsyncClient, engine: FakeEngine, path: str
) -> None:
    assert (await client.get(path)).status_code == 200
    engine.died.set()
    answer = await client.get(path)
    assert (answer.status_code, answer.json()) == (503, {"status": "dead"})


async def test_health_is_bad_while_nothing_is_heard_of_the_engine(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    for silent_for_s, expected in (
        (29.0, (200, "ok")),
        (31.0, (503, "unresponsive")),
        (0.5, (200, "ok")),
    ):
        engine.silent_for_s = silent_for_s
        answer = await client.get("/health")
        assert (answer.status_code, answer.json()["status"]) == expected
        page = (await client.get("/metrics")).text
        assert f'chairlift:engine_silence_seconds{{model_name="fake"}} {silent_for_s}' in page


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/metrics", "/v1/models"])
async def test_what_can_be_read_can_be_asked_for_its_head(
    client: httpx.AsyncClient, path: str
) -> None:
    assert (await client.head(path)).status_code == 200


async def test_health_is_bad_while_draining(engine: FakeEngine) -> None:
    app = create_app(engine, ServerSettings())
    app.state.context.is_draining = True
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "draining"})


async def test_the_version_is_told(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json() == {"version": VERSION}


async def test_a_prompt_is_tokenised_and_back(client: httpx.AsyncClient) -> None:
    answer = await client.post("/tokenize", json={"prompt": "hé", "return_token_strs": True})
    tokens = TokenizeResponse.model_validate_json(answer.content)
    assert (tokens.count, tokens.tokens) == (3, [0x68, 0xC3, 0xA9])
    assert tokens.token_strs == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    answer = await client.post("/detokenize", json={"tokens": tokens.tokens})
    assert DetokenizeResponse.model_validate_json(answer.content).prompt == "hé"


async def test_messages_are_tokenised_with_the_template(client: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "a"}]
    answer = await client.post("/tokenize", json={"messages": messages})
    assert bytes(answer.json()["tokens"]) == b"user: a\nassistant: "


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": 5}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "abc"}),
        ("/detokenize", {"tokens": [300]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [True]}),
    ],
)
async def test_what_cannot_be_tokenised_is_refused(
    client: httpx.AsyncClient, path: str, body: dict[str, object]
) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 400, answer.text


class TestApiKey:
    @pytest.fixture
    def settings(self) -> ServerSettings:
        return ServerSettings(api_key=("one", "two"))

    @pytest.mark.parametrize("header", [None, "Bearer three", "Basic one", "Bearer", "one"])
    async def test_requests_without_a_key_are_refused(
        self, client: httpx.AsyncClient, header: str | None
    ) -> None:
        headers = {"authorization": header} if header else {}
        answer = await client.get("/v1/models", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["error"]["code"] == "invalid_api_key"

    @pytest.mark.parametrize("key", ["one", "two"])
    async def test_each_key_opens(self, client: httpx.AsyncClient, key: str) -> None:
        answer = await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200

    @pytest.mark.parametrize("path", ["/health", "/ping", "/metrics", "/version", "/docs"])
    async def test_probes_and_scrapers_need_no_key(
        self, client: httpx.AsyncClient, path: str
    ) -> None:
        assert (await client.get(path)).status_code == 200


async def test_a_listed_origin_may_call_and_another_may_not(engine: FakeEngine) -> None:
    settings = ServerSettings(allowed_origin=("http://page",), api_key=("one",))
    async with client_of(engine, settings) as client:
        for origin, allowed in (("http://page", "http://page"), ("http://other", None)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = await client.options("/v1/completions", headers=headers)
            assert answer.headers.get("access-control-allow-origin") == allowed


async def test_without_allowed_origins_none_is_named(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/models", headers={"origin": "http://page"})
    assert "access-control-allow-origin" not in answer.headers


async def test_the_documentation_page_asks_nothing_of_other_hosts(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    assert "openapi.json" in page.text
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", page.text) == []


async def test_every_status_an_endpoint_can_give_is_documented(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    generating = {"200", "400", "401", "404", "413", "429", "500", "503"}
    assert set(paths["/v1/completions"]["post"]["responses"]) == generating
    assert set(paths["/v1/chat/completions"]["post"]["responses"]) == generating
    assert set(paths["/tokenize"]["post"]["responses"]) == generating - {"429", "503"}
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}
    assert "404" in paths["/v1/models/{model_id}"]["get"]["responses"]


async def test_every_reference_of_the_documentation_leads_somewhere(
    client: httpx.AsyncClient,
) -> None:
    document = await client.get("/openapi.json")
    names = set(re.findall(r'"#/components/schemas/(\w+)"', document.text))
    assert {"ChatCompletionRequest", "ChatCompletionChunk", "ErrorResponse"} <= names
    assert names <= set(document.json()["components"]["schemas"])


async def test_metrics_parse_and_show_the_engine_s_numbers(client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    blocks = {s.labels["state"]: s.value for s in families["chairlift:kv_blocks"].samples}
    assert blocks == {"live": 16, "cached": 32, "free": 16}
    for prefix in ("chairlift:", "vllm:"):
        values = {
            sample.name.removeprefix(prefix): sample.value
            for name, family in families.items()
            if name.startswith(prefix)
            for sample in family.samples
        }
        assert values["num_requests_waiting"] == 9
        assert values["kv_cache_usage_perc"] == 0.25
        assert values["num_preemptions_total"] == 3
        assert values["prompt_tokens_total"] == 100
        assert values["generation_tokens_total"] == 200
        assert values["prefix_cache_queries_total"] == 100
        assert values["prefix_cache_hits_total"] == 40
        assert values["time_to_first_token_seconds_count"] == 6
        assert values["e2e_request_latency_seconds_sum"] == 12.5


async def test_histogram_buckets_are_cumulative(client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        if family.name == "chairlift:inter_token_latency_seconds":
            counts = {s.labels["le"]: s.value for s in family.samples if "le" in s.labels}
            assert counts == {"0.1": 1, "1.0": 3, "+Inf": 6}
            return
    pytest.fail("there is no such histogram")


async def test_finished_requests_are_counted_by_reason(client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:request_success":
            counts = {s.labels["finished_reason"]: s.value for s in family.samples}
            assert counts == {"stop": 4, "length": 5, "abort": 0, "error": 0}
            return
    pytest.fail("there is no such counter")


@pytest.mark.parametrize(
    "fields",
    [
        {"host": ""},
        {"port": -1},
        {"port": 65536},
        {"max_body_bytes": 10},
        {"shutdown_timeout_s": -1.0},
        {"shutdown_timeout_s": float("nan")},
        {"served_model_name": ("",)},
        {"api_key": ("",)},
        {"root_path": "prefix"},
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        ServerSettings(**fields)  # type: ignore[arg-type]
