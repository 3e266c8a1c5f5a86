"""Swapping: what is copied when, what comes back, and that no token changes."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, expected_tokens, make_request

from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.inputs import CoreRequest


def crowded(num_swap_blocks: int = 100, **options: object) -> tuple[Bench, list[CoreRequest]]:
    """Requests whose prompts fit the pool of 10 blocks, but whose outputs do not."""
    bench = Bench(
        num_kv_blocks=10,
        block_size=4,
        num_swap_blocks=num_swap_blocks,
        preemption_mode="swap",
        **options,  # type: ignore[arg-type]
    )
    requests = [make_request(f"{i}", 7 + 2 * i, max_tokens=14) for i in range(3)]
    bench.add(*requests)
    return bench, requests


def copies(bench: Bench) -> tuple[int, int]:
    """Blocks copied out and in by all plans."""
    plans = bench.runner.plans
    return sum(len(p.swap_out) for p in plans), sum(len(p.swap_in) for p in plans)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_swap_blocks", [1, 2, 3, 100])
def test_tokens_do_not_change(caching: bool, num_swap_blocks: int) -> None:
    bench, requests = crowded(num_swap_blocks, enable_prefix_caching=caching)
    bench.run()
    assert copies(bench)[1] > 0
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def displaced(num_high_tokens: int) -> tuple[Bench, CoreRequest]:
    """A pool of 10 blocks in which a request with 4 of them gives way to another for a while."""
    bench = Bench(
        num_kv_blocks=10,
        num_swap_blocks=20,
        max_num_seqs=1,
        preemption_mode="swap",
        scheduling_policy="priority",
        enable_prefix_caching=False,
    )
    low = make_request("low", 10, max_tokens=10, priority=1)
    bench.add(low)
    for _ in range(4):
        bench.step()
    bench.add(make_request("high", num_high_tokens, max_tokens=2, priority=0))
    bench.run()
    assert bench.scheduler.stats().num_preemptions_total == 1
    assert bench.tokens_of("low") == expected_tokens(low)
    return bench, low


@pytest.mark.parametrize(("num_high_tokens", "num_needed"), [(20, 0), (26, 1), (31, 2), (38, 4)])
def test_as_many_blocks_are_copied_as_others_needed(num_high_tokens: int, num_needed: int) -> None:
    bench, _ = displaced(num_high_tokens)
    assert copies(bench) == (num_needed, num_needed)


def test_nothing_is_computed_again_with_room_for_everything() -> None:
    bench, requests = crowded(enable_prefix_caching=False)
    bench.run()
    num_scheduled = sum(sum(batch.values()) for batch in bench.batches)
    known = sum(len(r.prompt_token_ids) + len(expected_tokens(r)) for r in requests)
    assert bench.scheduler.stats().num_preemptions_total > 0
    assert num_scheduled == known - len(requests)


@pytest.mark.parametrize("num_high_tokens", [10, 38])
def test_it_goes_on_from_its_last_token(num_high_tokens: int) -> None:
    bench, _ = displaced(num_high_tokens)
    started = [row for plan in bench.runner.plans for row in plan.scheduled if row.replace_blocks]
    assert [row.num_computed_tokens for row in started] == [0, 0, 13]


def test_a_part_filled_block_comes_back() -> None:
    bench, _ = crowded(enable_prefix_caching=False)
    bench.run()
    returns = [
        row.num_computed_tokens
        for plan in bench.runner.plans
        for row in plan.scheduled
        if plan.swap_in and row.replace_blocks
    ]
    assert any(num_computed % 4 for num_computed in returns)


def test_swapped_tokens_are_no_hits_of_the_prefix_cache() -> None:
    bench, _ = crowded()
    bench.run()
    stats = bench.scheduler.stats()
    assert stats.swapped_tokens_total > 0
    assert stats.prefix_cache_hit_tokens == 0
    assert stats.prefix_cache_queried_tokens == 7 + 9 + 11


def test_a_cancelled_request_gives_back_its_slots_and_blocks() -> None:
    bench, _ = crowded(enable_prefix_caching=False)
    while not bench.scheduler.stats().num_swapped_blocks:
        bench.step()
    bench.abort("2")
    assert bench.scheduler.stats().num_swapped_blocks == 0
    bench.run()
    assert bench.scheduler.stats().num_free_blocks == 10


def test_after_a_step_that_failed_its_copies_are_not_believed_in() -> None:
    bench, requests = crowded(enable_prefix_caching=False)
    plan = bench.scheduler.schedule(bench.now_s)
    while not plan.swap_out:
        bench.collect(bench.scheduler.update(plan, bench.runner.execute(plan), bench.now_s))
        plan = bench.scheduler.schedule(bench.now_s)
    _fail(bench, plan)
    bench.run()
    assert bench.tokens_of("2") == expected_tokens(requests[2])
    bench.scheduler.kv_cache.left_behind.check_integrity()


def _fail(bench: Bench, plan: SchedulerOutput) -> None:
    """Let a step fail before anything of it was done, but for what the runner must know."""
    rows = [row.request_id for row in plan.scheduled]
    result = ModelRunnerOutput({}, errors=dict.fromkeys(rows, "boom"), copies_failed=True)
    bench.collect(bench.scheduler.update(plan, result, bench.now_s))
