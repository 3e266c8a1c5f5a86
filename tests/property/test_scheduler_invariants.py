"""Whatever arrives and leaves when, in whatever pool: nothing is lost, repeated or stuck."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import Bench, expected_tokens, make_request

from chairlift.config import TenantConfig
from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason


@dataclass(frozen=True)
class Arrival:
    """One request: when it comes, what it asks for, and after how many steps it is cancelled."""

    step: int
    num_prompt_tokens: int
    max_tokens: int
    shared_prefix: int
    priority: int
    tenant: str
    cancel_after: int | None


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 30),
    num_prompt_tokens=st.integers(1, 24),
    max_tokens=st.integers(1, 12),
    shared_prefix=st.integers(0, 16),
    priority=st.integers(-2, 2),
    tenant=st.sampled_from(["", "a", "b"]),
    cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 15)),
)


def request_of(index: int, arrival: Arrival) -> CoreRequest:
    """A request whose first tokens are those of all others with a shared prefix."""
    own = make_request(f"r{index}", arrival.num_prompt_tokens).prompt_token_ids
    prompt = [*range(500, 500 + arrival.shared_prefix), *own][: max(1, arrival.num_prompt_tokens)]
    return make_request(
        f"r{index}",
        prompt,
        max_tokens=arrival.max_tokens,
        arrival_time_s=float(arrival.step),
        priority=arrival.priority,
        tenant=arrival.tenant,
    )


def check_plan(bench: Bench, plan: SchedulerOutput, max_num_seqs: int, budget: int) -> None:
    """What must hold after every single step."""
    scheduled = [row.request_id for row in plan.scheduled]
    assert len(scheduled) == len(set(scheduled)) <= max_num_seqs
    assert sum(row.num_scheduled_tokens for row in plan.scheduled) <= budget
    assert not set(scheduled) & set(plan.preempted_request_ids)
    stats, pool = bench.scheduler.stats(), bench.scheduler.kv_cache.pool
    pool.check_integrity()
    bench.scheduler.kv_cache.left_behind.check_integrity()
    assert 0 <= stats.num_swapped_blocks <= stats.num_swap_blocks
    assert stats.num_live_blocks + stats.num_cached_blocks + stats.num_free_blocks == (
        pool.num_blocks
    )
    assert 0 <= stats.num_running <= max_num_seqs
    assert stats.num_waiting >= 0
    assert sum(name == "b" for name in bench.tenants_running()) <= 2


@settings(max_examples=700, deadline=None)
@given(
    plan=st.lists(arrivals, min_size=1, max_size=14),
    max_num_seqs=st.integers(1, 6),
    extra_budget=st.integers(0, 20),
    num_kv_blocks=st.integers(9, 30),
    block_size=st.sampled_from([4, 5, 16]),
    caching=st.booleans(),
    batching=st.sampled_from(["continuous", "continuous", "static", "dynamic"]),
    policy=st.sampled_from(["fcfs", "priority", "fair", "prefix"]),
    preemption_mode=st.sampled_from(["recompute", "swap", "auto"]),
    max_preemptions=st.integers(0, 3),
    num_swap_blocks=st.sampled_from([0, 1, 3, 100]),
)
def test_every_request_gets_exactly_its_tokens_and_gives_back_every_block(
    plan: list[Arrival],
    max_num_seqs: int,
    extra_budget: int,
    num_kv_blocks: int,
    block_size: int,
    caching: bool,
    batching: str,
    policy: str,
    preemption_mode: str,
    max_preemptions: int,
    num_swap_blocks: int,
) -> None:
    budget = max_num_seqs + extra_budget
    bench = Bench(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        num_kv_blocks=num_kv_blocks,
        block_size=block_size,
        batching=batching,  # type: ignore[arg-type]
        batch_window_s=2.0,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        tenants=(TenantConfig("a", weight=2.0), TenantConfig("b", max_running=2)),
        max_head_passes=2,
        preemption_mode=preemption_mode,
        max_preemptions=max_preemptions,
        num_swap_blocks=num_swap_blocks,
    )
    requests = [request_of(i, arrival) for i, arrival in enumerate(plan)]
    last_arrival = max(arrival.step for arrival in plan)
    step = num_idle = 0
    while step <= last_arrival or bench.scheduler.has_work:
        for request, arrival in zip(requests, plan, strict=True):
            if arrival.step == step:
                bench.add(request)
            if arrival.cancel_after is not None and arrival.step + arrival.cancel_after == step:
                bench.abort(request.request_id)
        stats = bench.scheduler.stats()
        waits = batching == "continuous" and stats.num_running + stats.num_waiting > 0
        done = bench.step()
        check_plan(bench, done, max_num_seqs, budget)
        # O13 (vllm-metal#479): requests wait, nothing runs, and no step advances.
        num_idle = num_idle + 1 if waits and done.is_empty else 0
        assert num_idle <= 1
        step += 1
        assert step < 3000, "no end in sight"

    for request, arrival in zip(requests, plan, strict=True):
        outputs = bench.outputs[request.request_id]
        reasons = [o.finish_reason for o in outputs if o.finish_reason is not None]
        tokens = bench.tokens_of(request.request_id)
        expected = expected_tokens(request)
        assert len(reasons) == 1
        if reasons == [FinishReason.LENGTH]:
            assert tokens == expected
        else:
            assert arrival.cancel_after is not None
            assert tokens == expected[: len(tokens)]
    preempted = Counter(name for plan in bench.runner.plans for name in plan.preempted_request_ids)
    assert max(preempted.values(), default=0) <= max_preemptions
    stats = bench.scheduler.stats()
    assert stats.num_live_blocks == stats.num_swapped_blocks == 0
    assert bench.runner.token_ids == {}
