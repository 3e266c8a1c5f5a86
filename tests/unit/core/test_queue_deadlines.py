"""Requests that waited too long for their start are named once, and only if they still wait."""

from __future__ import annotations

from tests.fakes import make_request

from chairlift.core.queue_deadlines import QueueDeadlines


def _all_wait(request_id: str) -> bool:
    return True


def test_a_request_is_overdue_once_it_has_waited_longer_than_it_may() -> None:
    deadlines = QueueDeadlines(2.0)
    deadlines.add(make_request("a", arrival_time_s=1.0))
    deadlines.add(make_request("b", arrival_time_s=2.0))
    assert deadlines.overdue(3.0, _all_wait) == []
    assert deadlines.overdue(3.5, _all_wait) == ["a"]
    assert deadlines.overdue(9.0, _all_wait) == ["b"]
    assert deadlines.overdue(99.0, _all_wait) == []


def test_who_has_started_or_ended_is_not_overdue() -> None:
    deadlines = QueueDeadlines(2.0)
    deadlines.add(make_request("a"))
    deadlines.add(make_request("b"))
    assert deadlines.overdue(5.0, lambda name: name == "b") == ["b"]


def test_without_a_limit_nobody_ever_is() -> None:
    deadlines = QueueDeadlines(0.0)
    deadlines.add(make_request("a"))
    assert deadlines.overdue(1e9, _all_wait) == []
