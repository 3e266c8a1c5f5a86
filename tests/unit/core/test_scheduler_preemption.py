"""Recompute preemption: who loses blocks, when it comes back, and that its tokens do not change."""

from __future__ import annotations

from tests.fakes import Bench, expected_tokens, make_request


def crowded(num_requests: int = 3, max_tokens: int = 12, **options: int) -> Bench:
    """Requests whose prompts fit the pool of 8 blocks, but whose outputs do not."""
    bench = Bench(num_kv_blocks=8, block_size=4, **options)
    bench.add(*(make_request(f"{i}", 7, max_tokens=max_tokens) for i in range(num_requests)))
    return bench


def test_request_that_arrived_last_is_the_one_preempted() -> None:
    bench = crowded()
    while not (plan := bench.step()).preempted_request_ids:
        pass
    assert plan.preempted_request_ids == ["2"]
    assert [row.request_id for row in plan.scheduled] == ["0", "1"]


def test_preempted_requests_tokens_do_not_change() -> None:
    bench = crowded(num_requests=4)
    bench.run()
    assert bench.scheduler.stats().num_preemptions_total > 0
    for i in range(4):
        request = make_request(f"{i}", 7, max_tokens=12)
        assert bench.tokens_of(f"{i}") == expected_tokens(request)


def test_preempted_request_returns_before_requests_that_never_ran() -> None:
    bench = crowded(max_num_seqs=3)
    while not bench.step().preempted_request_ids:
        pass
    bench.add(make_request("late", 1, max_tokens=1))
    bench.run()
    order = [name for batch in bench.batches for name in batch]
    last_return = max(i for i, batch in enumerate(bench.batches) if "2" in batch)
    assert order.index("late") > order.index("2")
    first_late = next(i for i, batch in enumerate(bench.batches) if "late" in batch)
    returned = next(
        i
        for i in range(1, len(bench.batches))
        if "2" in bench.batches[i] and "2" not in bench.batches[i - 1]
    )
    assert returned <= first_late <= last_return + 1


def test_no_new_request_starts_in_a_step_that_preempts() -> None:
    bench = crowded()
    bench.add(make_request("tiny", 1, max_tokens=1))
    for _ in range(200):
        if not bench.scheduler.has_work:
            break
        plan = bench.step()
        if plan.preempted_request_ids:
            assert not plan.new_requests


def test_returning_request_is_not_preempted_again_at_the_next_step() -> None:
    bench = crowded(num_requests=5, max_tokens=20)
    returned_in: dict[str, int] = {}
    steps_kept = []
    while bench.scheduler.has_work:
        plan = bench.step()
        new = {n.request.request_id for n in plan.new_requests}
        for row in plan.scheduled:
            if row.replace_blocks and row.request_id not in new:
                returned_in[row.request_id] = plan.step
        for request_id in plan.preempted_request_ids:
            if request_id in returned_in:
                steps_kept.append(plan.step - returned_in[request_id])
    assert all(kept > 1 for kept in steps_kept)


def test_first_arrival_is_never_preempted() -> None:
    bench = crowded(num_requests=6, max_tokens=20)
    bench.run()
    preempted = {i for plan in bench.runner.plans for i in plan.preempted_request_ids}
    assert preempted
    assert "0" not in preempted


def test_recomputed_tokens_are_not_counted_as_prefix_hits_or_prompt_tokens() -> None:
    """O1 (vllm#25780, vllm#25787)"""
    bench = crowded(num_requests=4)
    bench.run()
    stats = bench.scheduler.stats()
    assert stats.num_preemptions_total > 0
    assert (stats.prefix_cache_queried_tokens, stats.prefix_cache_hit_tokens) == (4 * 7, 0)
    assert stats.prefix_cache_recovered_tokens > 0
    assert stats.prompt_tokens_total == 4 * 7
    assert stats.generation_tokens_total == 4 * 12


def test_two_requests_that_each_fill_the_pool_both_finish() -> None:
    bench = Bench(num_kv_blocks=4, block_size=4)
    requests = [make_request(n, 3, max_tokens=14) for n in "ab"]
    bench.add(*requests)
    bench.run(max_steps=100)
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_prompt_half_computed_is_preempted_and_computed_again_whole() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4, max_num_batched_tokens=4, max_num_seqs=4)
    requests = [make_request("a", 4, max_tokens=20), make_request("b", 20, max_tokens=2)]
    bench.add(*requests)
    bench.run()
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)
