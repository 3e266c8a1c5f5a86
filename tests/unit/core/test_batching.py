"""Static and dynamic batching, the modes to be compared with."""

from __future__ import annotations

from tests.fakes import Bench, expected_tokens, make_request


def test_static_batch_returns_whole_when_its_longest_member_ends() -> None:
    bench = Bench(max_num_seqs=3, batching="static")
    requests = [make_request(n, max_tokens=k) for n, k in (("a", 1), ("b", 4), ("c", 2))]
    bench.add(*requests)
    for _ in range(3):
        bench.step()
        assert bench.outputs == {}
    bench.step()
    assert bench.returned_at == {"a": 4, "b": 4, "c": 4}
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_nobody_joins_a_static_batch_that_has_left() -> None:
    bench = Bench(max_num_seqs=4, batching="static")
    bench.add(make_request("a", max_tokens=3))
    bench.step()
    bench.add(make_request("b", max_tokens=1))
    bench.run()
    assert [list(batch) for batch in bench.batches] == [["a"], ["a"], ["a"], ["b"]]


def test_static_batch_boards_over_several_steps_when_the_budget_is_small() -> None:
    bench = Bench(max_num_seqs=3, max_num_batched_tokens=4, batching="static")
    bench.add(*(make_request(n, 4, max_tokens=3) for n in "abc"))
    bench.run()
    assert set(bench.returned_at.values()) == {len(bench.batches)}


def test_dynamic_batch_leaves_when_full_without_waiting() -> None:
    bench = Bench(max_num_seqs=2, batching="dynamic", batch_window_s=10.0)
    bench.add(make_request("a"), make_request("b"))
    assert len(bench.step().scheduled) == 2


def test_dynamic_batch_leaves_when_its_first_member_has_waited_for_the_window() -> None:
    bench = Bench(max_num_seqs=2, batching="dynamic", batch_window_s=3.0)
    bench.add(make_request("a", max_tokens=1))
    sizes = [len(bench.step().scheduled) for _ in range(5)]
    assert sizes == [0, 0, 0, 1, 0]


def test_idle_engine_is_told_when_the_window_ends() -> None:
    bench = Bench(max_num_seqs=2, batching="dynamic", batch_window_s=3.0)
    assert bench.scheduler.next_wakeup_s(0.0) is None
    bench.add(make_request("a", max_tokens=1))
    assert bench.scheduler.next_wakeup_s(1.0) == 2.0


def test_running_work_and_continuous_queues_never_wait_for_time() -> None:
    bench = Bench()
    assert bench.scheduler.next_wakeup_s(0.0) is None
    bench.add(make_request("a"))
    assert bench.scheduler.next_wakeup_s(0.0) == 0.0
    bench.step()
    assert bench.scheduler.next_wakeup_s(1.0) == 0.0


def test_aborting_the_last_running_member_releases_the_finished_ones() -> None:
    bench = Bench(max_num_seqs=2, batching="static")
    bench.add(make_request("a", max_tokens=1), make_request("b", max_tokens=9))
    bench.step()
    bench.abort("b")
    assert bench.tokens_of("a") == expected_tokens(make_request("a", max_tokens=1))


def test_with_a_delay_factor_new_requests_wait_for_company_beside_running_ones() -> None:
    bench = Bench(max_num_seqs=4, scheduler_delay_factor=2.0)
    bench.add(make_request("a", max_tokens=20))
    assert len(bench.step().scheduled) == 1  # nothing runs: at once
    bench.add(make_request("b", arrival_time_s=bench.now_s, max_tokens=20))
    sizes = [len(bench.step().scheduled) for _ in range(4)]
    # The step that started "a" took a second, so "b" waits for more than two.
    assert sizes == [1, 1, 1, 2]
    (report,) = bench.scheduler.explain(lambda name: name == "b")
    assert ("blocked", "delay_factor") in [(e.kind, e.details.get("limit")) for e in report.events]


def test_the_delay_gathers_prompts_into_one_step() -> None:
    bench = Bench(max_num_seqs=8, scheduler_delay_factor=3.0)
    bench.add(make_request("a", max_tokens=30))
    bench.step()
    for name in "bcd":
        bench.add(make_request(name, arrival_time_s=bench.now_s, max_tokens=30))
        bench.step()
    while bench.step().new_requests == []:
        pass
    assert list(bench.batches[-1]) == ["a", "b", "c", "d"]


def test_with_a_delay_factor_a_lone_request_does_not_wait() -> None:
    bench = Bench(scheduler_delay_factor=100.0)
    for name in "ab":
        bench.add(make_request(name, max_tokens=1, arrival_time_s=bench.now_s))
        assert len(bench.step().scheduled) == 1
