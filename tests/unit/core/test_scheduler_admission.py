"""The three limits of a step, the order of admission, and how requests end."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, expected_tokens, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.errors import ContextLengthError
from chairlift.outputs import FinishReason


def test_waiting_requests_start_in_order_of_arrival_up_to_max_num_seqs() -> None:
    bench = Bench(max_num_seqs=2)
    bench.add(make_request("a"), make_request("b"), make_request("c"))
    plan = bench.step()
    assert [row.request_id for row in plan.scheduled] == ["a", "b"]
    assert bench.scheduler.stats().num_waiting == 1


def test_finished_request_frees_its_slot_for_the_next_step() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add(make_request("a", max_tokens=1), make_request("b", max_tokens=1))
    bench.run()
    assert [list(batch) for batch in bench.batches] == [["a"], ["b"]]


def test_running_requests_come_before_waiting_ones_in_the_budget() -> None:
    bench = Bench(max_num_batched_tokens=8, max_num_seqs=8)
    bench.add(make_request("a", 8))
    bench.step()
    bench.add(make_request("b", 20))
    bench.step()
    assert bench.batches[1] == {"a": 1, "b": 7}


def test_step_never_holds_more_tokens_than_the_budget() -> None:
    bench = Bench(max_num_batched_tokens=16, max_num_seqs=8)
    bench.add(*(make_request(f"{i}", 10) for i in range(6)))
    bench.run()
    assert max(sum(batch.values()) for batch in bench.batches) == 16


def test_prompt_in_chunks_yields_no_token_before_its_last_chunk() -> None:
    bench = Bench(max_num_batched_tokens=8, max_num_seqs=1)
    bench.add(make_request("a", 20, max_tokens=1))
    for expected in ([], [], None):
        plan = bench.step()
        assert plan.scheduled[0].yields_token is (expected is None)
    assert len(bench.tokens_of("a")) == 1


def test_request_waits_until_the_blocks_of_its_whole_prompt_are_there() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4, max_num_batched_tokens=8)
    bench.add(make_request("a", 13, max_tokens=3), make_request("b", 20, max_tokens=1))
    bench.step()
    bench.step()
    assert list(bench.batches[1]) == ["a"]  # 8 - 4 blocks left, b needs 5
    bench.run()
    assert bench.scheduler.stats().num_preemptions_total == 0
    assert len(bench.tokens_of("b")) == 1


def test_output_tokens_follow_from_the_whole_context() -> None:
    bench = Bench(max_num_batched_tokens=8)
    requests = [make_request(f"{i}", 3 + 5 * i, max_tokens=6) for i in range(4)]
    bench.add(*requests)
    bench.run()
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_eos_ends_a_request_with_stop_and_no_stop_reason() -> None:
    request = make_request("a", 3, max_tokens=10)
    third = expected_tokens(request)[2]
    bench = Bench()
    bench.add(make_request("a", 3, max_tokens=10, eos=(third,)))
    bench.run()
    last = bench.outputs["a"][-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, None)
    assert bench.tokens_of("a") == expected_tokens(request)[:3]


def test_eos_is_an_ordinary_token_under_ignore_eos() -> None:
    request = make_request("a", 3, max_tokens=5)
    bench = Bench()
    eos = (expected_tokens(request)[2],)
    bench.add(make_request("a", 3, max_tokens=5, eos=eos, ignore_eos=True))
    bench.run()
    assert len(bench.tokens_of("a")) == 5
    assert bench.outputs["a"][-1].finish_reason is FinishReason.LENGTH


def test_stop_token_is_named_as_stop_reason() -> None:
    second = expected_tokens(make_request("a", 3, max_tokens=5))[1]
    bench = Bench()
    bench.add(make_request("a", 3, max_tokens=5, stop_token_ids=(second,)))
    bench.run()
    last = bench.outputs["a"][-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, second)


def test_scoring_request_ends_with_its_prompt_and_without_tokens() -> None:
    bench = Bench(max_num_batched_tokens=8)
    bench.add(make_request("a", 20, max_tokens=0, prompt_logprobs=0))
    bench.run()
    assert not any(row.yields_token for plan in bench.runner.plans for row in plan.scheduled)
    assert bench.tokens_of("a") == []
    assert bench.outputs["a"][-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(("num_prompt", "max_tokens"), [(1, 32), (32, 1), (16, 17), (31, 2)])
def test_request_that_exactly_fills_the_empty_pool_finishes(
    num_prompt: int, max_tokens: int
) -> None:
    bench = Bench(num_kv_blocks=8, block_size=4)
    bench.add(make_request("a", num_prompt, max_tokens=max_tokens))
    bench.run()
    assert len(bench.tokens_of("a")) == max_tokens


@pytest.mark.parametrize(("num_prompt", "max_tokens"), [(1, 33), (33, 1), (16, 18), (40, 1)])
def test_request_that_cannot_finish_in_the_empty_pool_is_refused(
    num_prompt: int, max_tokens: int
) -> None:
    bench = Bench(num_kv_blocks=8, block_size=4)
    with pytest.raises(ContextLengthError, match="at most 33 fit"):
        bench.add(make_request("a", num_prompt, max_tokens=max_tokens))
    assert not bench.scheduler.has_work


def test_live_request_id_cannot_be_used_twice() -> None:
    bench = Bench()
    bench.add(make_request("a"))
    with pytest.raises(ValueError, match="request id a is in use"):
        bench.add(make_request("a"))


def test_runner_is_told_once_about_each_request_and_each_end() -> None:
    bench = Bench(max_num_seqs=2)
    bench.add(*(make_request(f"{i}", max_tokens=2) for i in range(4)))
    bench.run()
    new = [n.request.request_id for p in bench.runner.plans for n in p.new_requests]
    finished = [i for p in bench.runner.plans for i in p.finished_request_ids]
    assert new == finished == ["0", "1", "2", "3"]


def test_stats_count_tokens_once_and_blocks_by_state() -> None:
    bench = Bench(num_kv_blocks=16, block_size=4)
    bench.add(make_request("a", 10, max_tokens=3))
    bench.step()
    stats = bench.scheduler.stats()
    assert (stats.num_running, stats.num_live_blocks, stats.num_free_blocks) == (1, 3, 13)
    bench.run()
    stats = bench.scheduler.stats()
    assert (stats.prompt_tokens_total, stats.generation_tokens_total) == (10, 3)
    assert (stats.num_live_blocks, stats.num_cached_blocks, stats.num_free_blocks) == (0, 3, 13)


def test_timings_name_arrival_scheduling_first_and_last_token() -> None:
    bench = Bench(max_num_seqs=1, max_num_batched_tokens=8)
    bench.add(make_request("a", max_tokens=3), make_request("b", 12, max_tokens=2))
    bench.run()
    timings = bench.outputs["b"][-1].timings
    assert timings is not None
    assert timings.queued_s == 0.0
    # a runs in steps 1 to 3; b computes 8, then 4 tokens, then one more.
    assert (timings.scheduled_s, timings.first_token_s, timings.last_token_s) == (3.0, 5.0, 6.0)


def test_prompt_over_the_models_length_is_refused_though_the_pool_would_hold_it() -> None:
    scheduler = Scheduler(SchedulerConfig(), make_limits(num_kv_blocks=64, max_model_len=16))
    with pytest.raises(ContextLengthError, match="at most 16 fit"):
        scheduler.add_request(make_request("a", 20, max_tokens=4))
