"""Quotas of tenants, and places held while prompts are tokenised."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine

from chairlift.engine.admission import Admission
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.engine.tenants import Tenant
from chairlift.errors import (
    EngineDeadError,
    EngineDrainingError,
    EngineOverloadedError,
    InvalidParameterError,
    QuotaExceededError,
    StartTooLateError,
)
from chairlift.inputs import NOBODY, Account, GenerateRequest
from chairlift.server.app import create_app
from chairlift.server.door import Door
from chairlift.server.settings import ServerSettings

OWN = Account("a")


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def door_of(engine: FakeEngine, clock: Clock | None = None, **limits: int) -> Door:
    return Door(engine, [Tenant("a", ("k",), **limits)], clock=clock or Clock())  # type: ignore[arg-type]


def enter(door: Door, num_choices: int = 1) -> None:
    with door.enter(OWN, num_choices):
        pass


def test_a_tenant_with_a_full_queue_of_its_own_is_refused(engine: FakeEngine) -> None:
    door = door_of(engine, max_queued=3)
    engine.usages["a"] = TenantUsage(num_queued=2)
    enter(door)
    engine.usages["a"] = TenantUsage(num_queued=3)
    with pytest.raises(QuotaExceededError, match=r"3 requests of tenant 'a'.*at most 3"):
        enter(door)


def test_requests_that_are_being_tokenised_count_as_queued(engine: FakeEngine) -> None:
    door = door_of(engine, max_queued=3)
    with door.enter(OWN, 2):
        with pytest.raises(QuotaExceededError, match="2 requests"):
            enter(door, 2)
        enter(door)
    enter(door, 3)


def test_more_choices_than_ever_fit_are_refused_for_good(engine: FakeEngine) -> None:
    with pytest.raises(InvalidParameterError, match=r"is 4, but at most 3.*max_queued"):
        enter(door_of(engine, max_queued=3), 4)


def test_the_quota_of_one_tenant_does_not_touch_others(engine: FakeEngine) -> None:
    door = Door(engine, [Tenant("a", ("k",), max_queued=1), Tenant("b", ("l",))])
    engine.usages["a"] = TenantUsage(num_queued=1)
    for name in ("b", "", "unheard of"):
        with door.enter(Account(name), 1):
            pass


def test_tokens_used_up_come_back_evenly(engine: FakeEngine) -> None:
    clock = Clock()
    door = door_of(engine, clock, tokens_per_minute=600)
    engine.usages["a"] = TenantUsage(num_tokens=600)
    with pytest.raises(QuotaExceededError) as raised:
        enter(door)
    assert raised.value.retry_after_s == pytest.approx(0.1)
    engine.usages["a"] = TenantUsage(num_tokens=900)
    with pytest.raises(QuotaExceededError) as raised:
        enter(door)
    assert raised.value.retry_after_s == pytest.approx(30.1)
    clock.now_s = 30.2
    enter(door)


def test_a_pause_saves_up_one_minute_and_no_more(engine: FakeEngine) -> None:
    clock = Clock()
    door = door_of(engine, clock, tokens_per_minute=600)
    clock.now_s = 3600.0
    enter(door)
    engine.usages["a"] = TenantUsage(num_tokens=600)
    with pytest.raises(QuotaExceededError):
        enter(door)


def test_quotas_act_before_the_common_queue(engine: FakeEngine) -> None:
    engine.refusal = EngineDeadError("never asked")
    engine.usages["a"] = TenantUsage(num_queued=1)
    with pytest.raises(QuotaExceededError):
        enter(door_of(engine, max_queued=1))


SETTINGS = ServerSettings(
    api_key=("common",),
    tenants=(
        Tenant("a", ("key-a",), priority_ceiling=1, max_queued=5),
        Tenant("b", ("key-b",)),
    ),
)


async def post(
    engine: FakeEngine, key: str, path: str = "/v1/completions", **fields: object
) -> httpx.Response:
    transport = httpx.ASGITransport(app=create_app(engine, SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        body = {"prompt": "hi"} | fields
        return await client.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize(("key", "tenant"), [("key-a", "a"), ("key-b", "b"), ("common", "")])
async def test_the_key_says_whose_a_request_is(engine: FakeEngine, key: str, tenant: str) -> None:
    assert (await post(engine, key)).status_code == 200
    assert [request.tenant for request in engine.requests] == [tenant]


@pytest.mark.parametrize("key", ["", "key-c", "key-a "[:-2]])
async def test_an_unknown_key_is_refused(engine: FakeEngine, key: str) -> None:
    assert (await post(engine, key)).status_code == 401
    assert engine.requests == []


async def test_a_request_above_its_tenant_s_ceiling_is_refused(engine: FakeEngine) -> None:
    answer = await post(engine, "key-a", priority=0)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "priority"
    assert "priority_ceiling" in answer.json()["error"]["message"]
    assert (await post(engine, "key-b", priority=-1000)).status_code == 200


async def test_a_quota_is_answered_with_429_and_a_time(engine: FakeEngine) -> None:
    engine.usages["a"] = TenantUsage(num_queued=5)
    answer = await post(engine, "key-a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
    assert int(answer.headers["retry-after"]) >= 1
    assert engine.input_processor.num_processed == 0


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (EngineOverloadedError("full", retry_after_s=1.0), "queue_full"),
        (StartTooLateError("late", retry_after_s=1.0), "start_too_late"),
        (EngineDrainingError("ending"), "draining"),
        (EngineDeadError("dead"), "engine"),
    ],
)
async def test_the_door_counts_whom_it_refuses_by_reason(
    engine: FakeEngine, refusal: Exception, reason: str
) -> None:
    app = create_app(engine, ServerSettings())
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        await client.post("/v1/completions", json={"prompt": "a"})
        engine.refusal = refusal  # type: ignore[assignment]
        for _ in range(2):
            await client.post("/v1/completions", json={"prompt": "a"})
        text = (await client.get("/metrics")).text
    counts = {
        line.split('reason="')[1].split('"')[0]: float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("chairlift:requests_refused_total{")
    }
    assert counts.pop(reason) == 2.0
    assert counts.pop("queue_timeout") == 3.0  # the fake engine's
    assert set(counts.values()) == {0.0}


def test_a_quota_counts_as_a_reason(engine: FakeEngine) -> None:
    door = door_of(engine, max_queued=3)
    engine.usages["a"] = TenantUsage(num_queued=3)
    with pytest.raises(QuotaExceededError):
        enter(door)
    assert door.num_refused["quota"] == 1


async def test_of_a_burst_only_as_many_are_tokenised_as_may_wait(
    engine: FakeEngine, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S14 (vllm#58192): fifty at once, two may wait; 48 know it while those two are tokenised."""
    is_tokenised = asyncio.Event()
    process, admission = engine.input_processor.process, Admission(2)

    async def process_slowly(*args: Any, **fields: Any) -> GenerateRequest:
        request = await process(*args, **fields)
        await is_tokenised.wait()
        return request

    def check(num_choices: int = 1, *, account: Account = NOBODY, num_entering: int = 0) -> None:
        admission.check(num_entering, num_choices)

    monkeypatch.setattr(engine.input_processor, "process", process_slowly)
    monkeypatch.setattr(engine, "check_admission", check)
    body = {"prompt": "word " * 800, "max_tokens": 1}
    sent = [asyncio.ensure_future(client.post("/v1/completions", json=body)) for _ in range(50)]
    early = [await answer for answer in islice(asyncio.as_completed(sent), 48)]
    assert {answer.status_code for answer in early} == {429}
    assert engine.input_processor.num_processed == 2
    is_tokenised.set()
    statuses = [(await answer).status_code for answer in sent]
    assert (statuses.count(200), statuses.count(429)) == (2, 48)
