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
