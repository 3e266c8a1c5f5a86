"""Cancellation at any moment frees everything and emits nothing afterwards."""

from __future__ import annotations

from tests.fakes import Bench, expected_tokens, make_request

from chairlift.outputs import FinishReason


def test_waiting_request_is_removed_and_reported_once() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a"), make_request("b"))
    bench.step()
    bench.abort("b")
    bench.run()
    assert [output.finish_reason for output in bench.outputs["b"]] == [FinishReason.ABORT]
    assert all("b" not in batch for batch in bench.batches)


def test_running_request_frees_its_blocks_at_once() -> None:
    bench = Bench()
    bench.add(make_request("a", 10, max_tokens=50))
    bench.step()
    bench.abort("a")
    stats = bench.scheduler.stats()
    assert (stats.num_running, stats.num_live_blocks) == (0, 0)


def test_no_token_comes_out_after_a_cancel_during_the_last_prompt_chunk() -> None:
    """S19 (sglang#34149, sglang#34112)"""
    bench = Bench(max_num_batched_tokens=8)
    bench.add(make_request("a", 24))
    bench.step()
    bench.step()
    plan = bench.scheduler.schedule(bench.now_s)
    assert plan.scheduled[0].yields_token
    bench.abort("a")
    bench.collect(bench.scheduler.update(plan, bench.runner.execute(plan), bench.now_s))
    assert bench.tokens_of("a") == []
    assert bench.outputs["a"][-1].finish_reason is FinishReason.ABORT


def test_preempted_request_can_be_cancelled() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4)
    bench.add(*(make_request(f"{i}", 7, max_tokens=12) for i in range(3)))
    while not (plan := bench.step()).preempted_request_ids:
        pass
    bench.abort(*plan.preempted_request_ids)
    bench.run()
    for i in range(2):
        assert bench.tokens_of(f"{i}") == expected_tokens(make_request(f"{i}", 7, max_tokens=12))
    assert bench.scheduler.stats().num_live_blocks == 0


def test_unknown_and_already_finished_ids_are_ignored() -> None:
    bench = Bench()
    bench.add(make_request("a", max_tokens=1))
    bench.run()
    assert bench.scheduler.abort(["a", "never"]) == []


def test_runner_is_told_of_a_cancelled_request_only_if_it_knew_it() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a", max_tokens=9), make_request("b"))
    bench.step()
    bench.abort("a", "b")
    plan = bench.step()
    assert plan.finished_request_ids == ["a"]
    assert not bench.scheduler.has_work


def test_neighbours_of_a_cancelled_request_keep_their_tokens() -> None:
    bench = Bench()
    requests = [make_request(f"{i}", 6, max_tokens=8) for i in range(3)]
    bench.add(*requests)
    bench.step()
    bench.abort("1")
    bench.add(make_request("new", 9, max_tokens=8))
    bench.run()
    for request in (requests[0], requests[2], make_request("new", 9, max_tokens=8)):
        assert bench.tokens_of(request.request_id) == expected_tokens(request)
