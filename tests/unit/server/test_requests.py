"""Requests are listed, explained and ended, each to those who may see it."""

from __future__ import annotations

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

from chairlift.engine.tenants import Tenant
from chairlift.outputs import RequestEvent, RequestReport, WaitReason
from chairlift.server.app import create_app
from chairlift.server.responses import ChoiceReportList, DeletedRequest, RequestDetails
from chairlift.server.settings import ServerSettings

WAITING = RequestReport(
    request_id="cmpl-w",
    state="waiting",
    tenant="a",
    priority=3,
    arrival_s=1.0,
    num_prompt_tokens=5,
    num_output_tokens=0,
    num_cached_tokens=0,
    num_preemptions=0,
    num_free_blocks=2,
    position=0,
    wait=WaitReason("kv_blocks", 2, 4, "it needs 4 KV blocks and 2 are there"),
    events=(RequestEvent(0.25, "blocked", {"limit": "kv_blocks", "have": 2, "need": 4}),),
)
RUNNING = RequestReport("cmpl-r", "running", "b", 0, 1.0, 5, 7, 0, 0)
ENDED = RequestReport("cmpl-e", "finished", "a", 0, 1.0, 5, 9, 0, 0, finish_reason="stop")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(reports=[WAITING, RUNNING, ENDED])


async def test_those_that_wait_or_run_are_listed(client: httpx.AsyncClient) -> None:
    listed = ChoiceReportList.model_validate_json((await client.get("/v1/requests")).content)
    assert [choice.id for choice in listed.data] == ["cmpl-w", "cmpl-r"]


async def test_those_in_one_state_are_listed(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/requests", params={"state": "finished"})
    assert [choice["id"] for choice in answer.json()["data"]] == ["cmpl-e"]


async def test_an_unheard_of_state_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/requests", params={"state": "sleeping"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "state")


async def test_a_request_says_why_it_waits_and_what_happened(client: httpx.AsyncClient) -> None:
    found = RequestDetails.model_validate_json((await client.get("/v1/requests/cmpl-w")).content)
    (choice,) = found.choices
    assert choice.wait is not None
    assert (choice.wait.limit, choice.wait.have, choice.wait.need) == ("kv_blocks", 2, 4)
    assert (choice.position, choice.free_blocks, choice.priority) == (0, 2, 3)
    assert choice.events == [
        {"at_s": 0.25, "kind": "blocked", "limit": "kv_blocks", "have": 2, "need": 4}
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_request_is_not_found(client: httpx.AsyncClient, method: str) -> None:
    answer = await client.request(method, "/v1/requests/nobody/knows")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")
    assert "nobody/knows" in answer.json()["error"]["message"]


async def test_ending_a_request_confirms_it_with_its_tokens(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/v1/requests/cmpl-r")
    deleted = DeletedRequest.model_validate_json(answer.content)
    assert (deleted.deleted, deleted.aborted_choices, deleted.completion_tokens) == (True, 1, 7)


async def test_ending_what_has_ended_says_so(client: httpx.AsyncClient) -> None:
    answer = (await client.delete("/v1/requests/cmpl-e")).json()
    assert (answer["deleted"], answer["completion_tokens"]) == (False, 0)


@pytest.mark.parametrize(
    ("key", "seen"), [("key-a", {"cmpl-w"}), ("key-b", {"cmpl-r"}), ("all", {"cmpl-w", "cmpl-r"})]
)
async def test_a_tenant_sees_and_ends_only_its_own(
    engine: FakeEngine, key: str, seen: set[str]
) -> None:
    settings = ServerSettings(
        api_key=("all",), tenants=(Tenant("a", ("key-a",)), Tenant("b", ("key-b",)))
    )
    transport = httpx.ASGITransport(app=create_app(engine, settings))
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://server", headers=headers
    ) as client:
        listed = (await client.get("/v1/requests")).json()["data"]
        assert {choice["id"] for choice in listed} == seen
        for request_id in ("cmpl-w", "cmpl-r"):
            status = 200 if request_id in seen else 404
            assert (await client.get(f"/v1/requests/{request_id}")).status_code == status
            assert (await client.delete(f"/v1/requests/{request_id}")).status_code == status
