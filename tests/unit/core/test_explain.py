"""Every wait has a reason with numbers, and every request a history."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, make_request

from chairlift.config import TenantConfig
from chairlift.core.request_log import MAX_EVENTS, MAX_FINISHED
from chairlift.outputs import RequestReport, WaitReason


def report_of(bench: Bench, request_id: str) -> RequestReport:
    (report,) = bench.scheduler.explain(lambda other: other == request_id)
    return report


def wait_of(bench: Bench, request_id: str) -> WaitReason:
    wait = report_of(bench, request_id).wait
    if wait is None:
        raise AssertionError(f"{request_id} does not wait")
    return wait


def history(bench: Bench, request_id: str) -> list[tuple[float, str]]:
    return [(event.at_s, event.kind) for event in report_of(bench, request_id).events]


def test_without_a_free_slot_a_request_waits_for_one() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a"), make_request("b"), make_request("c"))
    bench.step()
    wait = wait_of(bench, "b")
    assert (wait.limit, wait.have, wait.need) == ("slots", 0, 1)
    assert "max_num_seqs" in wait.text
    assert [report_of(bench, name).position for name in "abc"] == [None, 0, 1]


def test_without_blocks_a_request_says_how_many_it_needs_and_how_many_there_are() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4)
    bench.add(make_request("a", 20, max_tokens=8), make_request("b", 17, max_tokens=2))
    bench.step()
    wait = wait_of(bench, "b")
    assert (wait.limit, wait.have, wait.need) == ("kv_blocks", 3, 5)
    assert report_of(bench, "b").num_free_blocks == 3
    assert report_of(bench, "a").num_blocks == 5


def test_the_budget_of_the_step_keeps_a_request_waiting() -> None:
    bench = Bench(max_num_seqs=4, max_num_batched_tokens=16)
    for name in "abcde":
        bench.add(make_request(name, 16, max_tokens=2))
    bench.step()
    waiting = [r for r in bench.scheduler.explain() if r.state == "waiting" and r.position == 0]
    assert waiting[0].wait is not None
    assert waiting[0].wait.limit in ("token_budget", "slots")
    narrow = Bench(max_num_seqs=16, max_num_batched_tokens=16)
    for index in range(6):
        narrow.add(make_request(f"r{index}", 40, max_tokens=2))
    narrow.step()
    assert wait_of(narrow, "r5").limit == "token_budget"


def test_a_full_tenant_is_named() -> None:
    bench = Bench(tenants=(TenantConfig("t", max_running=1),))
    bench.add(make_request("a", tenant="t"), make_request("b", tenant="t"))
    bench.step()
    wait = wait_of(bench, "b")
    assert (wait.limit, wait.have, wait.need) == ("tenant", 0, 1)
    assert "'t'" in wait.text


def test_whoever_waits_because_blocks_are_kept_for_the_first_is_told_so() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4, max_head_passes=1)
    bench.add(make_request("running", 4, max_tokens=16))
    bench.step()
    bench.add(make_request("big", 28, max_tokens=2))
    bench.add(make_request("first", 4, max_tokens=2))
    bench.step()
    bench.add(make_request("second", 4, max_tokens=2))
    bench.step()
    wait = wait_of(bench, "second")
    assert (wait.limit, wait.have, wait.need) == ("head_of_line", 1, 1)
    assert "big" in wait.text
    assert wait_of(bench, "big").limit == "kv_blocks"


def test_a_batch_that_has_left_is_the_reason_under_static_batching() -> None:
    bench = Bench(max_num_seqs=4, batching="static")
    bench.add(make_request("a"))
    bench.step()
    bench.add(make_request("b"))
    bench.step()
    assert wait_of(bench, "b").limit == "batch"


def test_a_request_that_was_not_looked_at_yet_starts_at_the_next_step() -> None:
    bench = Bench()
    bench.add(make_request("a"))
    assert wait_of(bench, "a").limit == "next_step"


def test_a_running_request_waits_for_nothing() -> None:
    bench = Bench()
    bench.add(make_request("a"))
    bench.step()
    report = report_of(bench, "a")
    assert (report.state, report.wait, report.position) == ("running", None, None)


def test_a_request_s_history_goes_from_its_arrival_to_its_end() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a", max_tokens=2), make_request("b", 3, max_tokens=2))
    bench.run()
    assert history(bench, "b") == [
        (0.0, "queued"),
        (0.0, "blocked"),
        (2.0, "scheduled"),
        (3.0, "first_token"),
        (4.0, "finished"),
    ]
    report = report_of(bench, "b")
    assert (report.state, report.finish_reason, report.num_output_tokens) == (
        "finished",
        "length",
        2,
    )


def test_a_prompt_computed_over_many_steps_is_one_event_with_their_sum() -> None:
    bench = Bench(max_num_batched_tokens=16, max_num_seqs=4)
    bench.add(make_request("a", 100, max_tokens=1))
    bench.run()
    (scheduled,) = [e for e in report_of(bench, "a").events if e.kind == "scheduled"]
    assert scheduled.details == {"tokens": 100, "cached_tokens": 0, "steps": 7}


def test_cached_tokens_are_told_from_computed_ones() -> None:
    bench = Bench()
    bench.add(make_request("a", list(range(2, 14)), max_tokens=1))
    bench.run()
    bench.add(make_request("b", [*range(2, 14), 50, 51], max_tokens=1))
    bench.run()
    (scheduled,) = [e for e in report_of(bench, "b").events if e.kind == "scheduled"]
    assert scheduled.details == {"tokens": 2, "cached_tokens": 12, "steps": 1}


def test_a_preempted_request_knows_by_whom_and_why_and_when_it_came_back() -> None:
    bench = Bench(num_kv_blocks=6, block_size=4)
    bench.add(make_request("a", 8, max_tokens=12), make_request("b", 8, max_tokens=8))
    bench.run()
    events = report_of(bench, "b").events
    (preempted,) = [event for event in events if event.kind == "preempted"]
    assert preempted.details == {"mode": "recompute", "by": "a", "why": "kv_blocks"}
    assert [e.kind for e in events].index("resumed") > events.index(preempted)


def test_a_displaced_request_names_the_urgent_one() -> None:
    bench = Bench(max_num_seqs=1, scheduling_policy="priority")
    bench.add(make_request("low", max_tokens=9, priority=5))
    bench.step()
    bench.add(make_request("high", max_tokens=2, priority=0, arrival_time_s=1.0))
    bench.run()
    (preempted,) = [e for e in report_of(bench, "low").events if e.kind == "preempted"]
    assert preempted.details == {"mode": "recompute", "by": "high", "why": "priority"}


def test_an_aborted_request_is_remembered_with_what_it_had() -> None:
    bench = Bench()
    bench.add(make_request("a", max_tokens=50))
    bench.step()
    bench.step()
    bench.abort("a")
    report = report_of(bench, "a")
    assert (report.finish_reason, report.num_output_tokens) == ("abort", 2)


def test_only_the_last_finished_requests_are_remembered() -> None:
    bench = Bench()
    for index in range(MAX_FINISHED + 5):
        bench.add(make_request(f"r{index}", max_tokens=1))
    bench.run()
    ids = [report.request_id for report in bench.scheduler.explain()]
    assert ids == [f"r{index}" for index in range(5, MAX_FINISHED + 5)]


def test_a_history_is_bounded_and_keeps_its_beginning() -> None:
    bench = Bench(max_num_seqs=1, scheduling_policy="priority")
    bench.add(make_request("low", max_tokens=200, priority=900))
    for index in range(40):
        bench.step()
        bench.add(make_request(f"high{index}", max_tokens=1, arrival_time_s=bench.now_s))
        bench.step()
    events = report_of(bench, "low").events
    assert len(events) <= MAX_EVENTS + 1  # the first token is kept apart
    assert events[0].kind == "queued"


def test_a_wait_that_goes_on_keeps_the_time_it_began() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a", max_tokens=30), make_request("b"))
    for _ in range(20):
        bench.step()
    assert history(bench, "b") == [(0.0, "queued"), (0.0, "blocked")]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "prefix"])
def test_explaining_changes_nothing(policy: str) -> None:
    def batches(*, explained: bool) -> list[dict[str, int]]:
        bench = Bench(num_kv_blocks=10, max_num_seqs=3, scheduling_policy=policy)
        for index in range(12):
            bench.add(make_request(f"r{index}", 5 + index, max_tokens=6, priority=index % 3))
        while bench.scheduler.has_work:
            bench.step()
            if explained:
                bench.scheduler.explain(lambda _: True)
        return bench.batches

    assert batches(explained=True) == batches(explained=False)
