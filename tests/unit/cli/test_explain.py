"""What ``chairlift explain`` says about requests, and about servers that are not there."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from chairlift.cli.explain import fetch, overview, story
from chairlift.errors import ConfigError

WAITING: dict[str, Any] = {
    "id": "cmpl-w",
    "state": "waiting",
    "finish_reason": None,
    "age_s": 0.84,
    "prompt_tokens": 70,
    "cached_tokens": 16,
    "completion_tokens": 0,
    "preemptions": 0,
    "blocks": 0,
    "position": 2,
    "wait": {"limit": "kv_blocks", "have": 3, "need": 5, "text": "it needs 5 KV blocks"},
    "events": [
        {"at_s": 0.0, "kind": "queued", "prompt_tokens": 70, "priority": 0},
        {"at_s": 0.0214, "kind": "first_token"},
    ],
}
RUNNING = WAITING | {
    "id": "cmpl-running",
    "state": "running",
    "wait": None,
    "completion_tokens": 9,
    "blocks": 4,
}
ENDED = RUNNING | {"id": "cmpl-e", "state": "finished", "finish_reason": "stop"}


def test_the_overview_has_a_line_for_each_choice() -> None:
    assert overview([WAITING, RUNNING, ENDED]) == [
        "cmpl-w        waiting 0.8 s, 2 before it: it needs 5 KV blocks",
        "cmpl-running  running 0.8 s, 9 tokens, 4 KV blocks",
        "cmpl-e        stop, 9 tokens",
    ]


def test_an_idle_server_has_no_requests_to_show() -> None:
    assert overview([]) == ["no request waits or runs"]


def test_the_story_of_a_choice_says_why_it_waits_and_what_happened_when() -> None:
    assert story(WAITING) == [
        "cmpl-w: waiting 0.8 s, 2 before it: it needs 5 KV blocks",
        "  prompt 70 tokens, 16 of them cached; output 0; preempted 0 times",
        "  waits for kv_blocks: has 3, needs 5",
        "       0.000 s  queued       prompt tokens 70, priority 0",
        "       0.021 s  first token",
    ]


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1/requests"
    with pytest.raises(ConfigError, match=rf"no answer from {url}: .*refused.*--url"):
        fetch(url, "")


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="no answer from nonsense"):
        fetch("nonsense", "")
