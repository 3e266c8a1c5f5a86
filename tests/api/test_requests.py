"""Every wait has a reason: requests explained and ended through a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from tests.api.serving import Server

BLOCKER = {"prompt": "go", "max_tokens": 8000, "ignore_eos": True}


def explained(server: Server, request_id: str) -> dict[str, Any]:
    answer = server.http.get(f"/v1/requests/{request_id}")
    if answer.status_code != 200:
        raise AssertionError(answer.text)
    (choice,) = answer.json()["choices"]
    return dict(choice)


def listed(server: Server) -> dict[str, str]:
    data = server.http.get("/v1/requests").json()["data"]
    return {choice["id"]: choice["state"] for choice in data}


def post(server: Server, request_id: str, *, stream: bool = False) -> httpx.Response:
    body = {"prompt": "go", "max_tokens": 2, "ignore_eos": True, "stream": stream}
    headers = {"x-request-id": request_id}
    return server.http.post("/v1/completions", json=body, headers=headers)


def test_a_waiting_request_says_what_it_waits_for_and_later_what_happened(
    single_server: Server,
) -> None:
    events = single_server.stream("/v1/completions", BLOCKER | {"request_id": "blocker"})
    next(events)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, single_server, "first")
        single_server.wait_until(lambda: "cmpl-first" in listed(single_server), "first waits")
        second = threads.submit(post, single_server, "second")
        single_server.wait_until(lambda: "cmpl-second" in listed(single_server), "second waits")
        choice = explained(single_server, "cmpl-second")
        assert (choice["state"], choice["position"]) == ("waiting", 1)
        assert (choice["wait"]["limit"], choice["wait"]["have"], choice["wait"]["need"]) == (
            "slots",
            0,
            1,
        )
        assert explained(single_server, "blocker")["state"] == "running"
        events.close()
        assert [answer.result().status_code for answer in (first, second)] == [200, 200]
    kinds = [event["kind"] for event in explained(single_server, "first")["events"]]
    assert kinds == ["queued", "blocked", "scheduled", "first_token", "finished"]
    assert explained(single_server, "blocker")["finish_reason"] == "abort"
    single_server.wait_idle()


def test_a_request_that_is_ended_confirms_and_frees_its_slot(single_server: Server) -> None:
    events = single_server.stream("/v1/completions", BLOCKER | {"request_id": "long"})
    next(events)
    deleted = single_server.http.delete("/v1/requests/long").json()
    assert (deleted["deleted"], deleted["aborted_choices"]) == (True, 1)
    assert 1 <= deleted["completion_tokens"] < 8000
    *_, error, done = events
    assert "ended" in error["error"]["message"]
    assert done == "[DONE]"
    single_server.wait_idle()


def test_a_queued_stream_that_is_ended_gets_an_error_status_and_no_empty_stream(
    single_server: Server,
) -> None:
    """S16 (ninfer#137): not 200 and a clean end without frames."""
    events = single_server.stream("/v1/completions", BLOCKER)
    next(events)
    with ThreadPoolExecutor(1) as threads:
        queued = threads.submit(post, single_server, "queued", stream=True)
        single_server.wait_until(lambda: "cmpl-queued" in listed(single_server), "it waits")
        assert single_server.http.delete("/v1/requests/queued").json()["completion_tokens"] == 0
        answer = queued.result()
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "request_failed"
    events.close()
    single_server.wait_idle()


def test_the_command_line_explains_a_request(single_server: Server) -> None:
    post(single_server, "told")
    command = [sys.executable, "-m", "chairlift", "explain", "told", "--url", single_server.url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "cmpl-told: length, 2 tokens" in told
    assert "first token" in told
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["choices"][0]["id"] == "cmpl-told"


def test_the_command_line_says_in_one_line_that_a_request_is_unknown(
    single_server: Server,
) -> None:
    command = [sys.executable, "-m", "chairlift", "explain", "nobody", "--url", single_server.url]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "'nobody'" in line
