"""No request is preempted more often than may be, and each of them still ends."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.fakes import Bench, expected_tokens, make_request

from chairlift.config import TenantConfig


def preemptions(bench: Bench) -> Counter[str]:
    """How often each request lost its blocks."""
    return Counter(name for plan in bench.runner.plans for name in plan.preempted_request_ids)


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "prefix"])
@pytest.mark.parametrize("max_preemptions", [0, 1, 2, 3])
def test_the_bound_holds_exactly_under_every_policy(policy: str, max_preemptions: int) -> None:
    bench = Bench(
        num_kv_blocks=8,
        block_size=4,
        scheduling_policy=policy,
        max_preemptions=max_preemptions,
        enable_prefix_caching=False,
    )
    requests = [
        make_request(
            f"{i}", 5, max_tokens=20, tenant="ab"[i % 2], priority=-i, arrival_time_s=float(i)
        )
        for i in range(8)
    ]
    for request in requests:
        bench.add(request)
        bench.step()
        bench.step()
    bench.run()
    assert max(preemptions(bench).values(), default=0) <= max_preemptions
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_prompts_longer_than_a_step_return_with_blocks_for_all_they_had() -> None:
    """S11 (vllm#25538): not with those of the first chunk, to lose them at the next."""
    bench = Bench(
        num_kv_blocks=16, block_size=4, max_num_batched_tokens=8, enable_prefix_caching=False
    )
    requests = [make_request(name, 26, max_tokens=30) for name in "abc"]
    bench.add(*requests)
    bench.run()
    counts = preemptions(bench)
    assert 1 <= max(counts.values()) <= 3
    num_tokens = dict.fromkeys("abc", 26)
    for plan in bench.runner.plans:
        for row in plan.scheduled:
            if row.replace_blocks:
                assert len(row.new_block_ids) >= -(-num_tokens[row.request_id] // 4)
            num_tokens[row.request_id] += row.yields_token
    for request in requests:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_with_a_bound_of_zero_a_request_starts_with_all_it_may_ever_need() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4, max_preemptions=0)
    bench.add(*(make_request(f"{i}", 5, max_tokens=12) for i in range(3)))
    plan = bench.step()
    assert [len(row.new_block_ids) for row in plan.scheduled] == [4, 4]
    bench.run()
    assert bench.scheduler.stats().num_preemptions_total == 0


def test_after_the_last_preemption_it_returns_with_all_it_may_still_need() -> None:
    bench = Bench(num_kv_blocks=8, block_size=4, max_preemptions=1)
    bench.add(*(make_request(f"{i}", 7, max_tokens=12) for i in range(3)))
    bench.run()
    returns = _tables_on_return(bench)
    assert returns and set(returns) == {5}  # 7 + 12 - 1 tokens


def _tables_on_return(bench: Bench) -> list[int]:
    seen: set[str] = set()
    sizes = []
    for plan in bench.runner.plans:
        for row in plan.scheduled:
            if row.replace_blocks and row.request_id in seen:
                sizes.append(len(row.new_block_ids))
            seen.add(row.request_id)
    return sizes


def test_a_stream_of_urgent_requests_displaces_a_low_one_so_often_and_no_more() -> None:
    bench = Bench(max_num_seqs=1, scheduling_policy="priority", max_preemptions=2)
    low = make_request("low", 3, max_tokens=30, priority=9)
    bench.add(low)
    for i in range(20):
        for _ in range(3):
            bench.step()
        bench.add(make_request(f"high{i}", 3, max_tokens=2, arrival_time_s=bench.now_s))
    bench.run()
    assert preemptions(bench) == {"low": 2}
    assert bench.tokens_of("low") == expected_tokens(low)


def test_who_displaces_for_the_last_time_runs_before_the_displaced() -> None:
    bench = Bench(max_num_seqs=1, scheduling_policy="priority", max_preemptions=1)
    bench.add(make_request("low", 3, max_tokens=30, priority=9))
    for _ in range(3):
        bench.step()
    bench.add(make_request("high", 3, max_tokens=4, arrival_time_s=bench.now_s))
    plan = bench.step()
    assert plan.preempted_request_ids == ["low"]
    assert [row.request_id for row in plan.scheduled] == ["high"]


def test_it_returns_under_a_steady_stream_of_others_that_need_less() -> None:
    """Those of tenant b have had less service and need few blocks, but it was its turn first."""
    bench = Bench(
        num_kv_blocks=10,
        block_size=4,
        max_preemptions=1,
        scheduling_policy="fair",
        tenants=(TenantConfig("b", weight=100.0),),
        enable_prefix_caching=False,
    )
    bench.add(make_request("a0", 7, max_tokens=25, tenant="a"))
    bench.add(make_request("a1", 7, max_tokens=25, tenant="a"))
    for i in range(300):
        bench.add(make_request(f"b{i}", 4, max_tokens=6, tenant="b", arrival_time_s=bench.now_s))
        bench.step()
    assert {"a0", "a1"} <= set(bench.returned_at)


def test_a_running_request_that_keeps_its_blocks_gets_its_token_in_a_step_that_preempts() -> None:
    bench = Bench(num_kv_blocks=9, block_size=4, max_preemptions=1, enable_prefix_caching=False)
    bench.add(*(make_request(f"{i}", 4, max_tokens=14, arrival_time_s=float(i)) for i in range(4)))
    while bench.scheduler.has_work:
        running = bench.scheduler.stats().num_running
        plan = bench.step()
        if not any(row.replace_blocks for row in plan.scheduled):
            assert len(plan.scheduled) == running - len(plan.preempted_request_ids)
