"""Tenants that compete get equal service, whatever the sizes and numbers of their requests."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, make_request

from chairlift.config import TenantConfig
from chairlift.core.policies.fair import DECODE_COST, PREFILL_COST, FairPolicy


def policy_of(bench: Bench) -> FairPolicy:
    policy = bench.scheduler._policy
    assert isinstance(policy, FairPolicy)
    return policy


def backlog(bench: Bench, tenant: str, count: int, num_prompt: int, max_tokens: int) -> None:
    """Requests that keep a tenant backlogged."""
    bench.add(
        *(
            make_request(f"{tenant}{i}", num_prompt, max_tokens=max_tokens, tenant=tenant)
            for i in range(count)
        )
    )


def test_service_gap_of_two_backlogged_tenants_stays_within_the_papers_bound() -> None:
    max_num_seqs, num_prompt = 4, 40
    bench = Bench(
        scheduling_policy="fair",
        max_num_seqs=max_num_seqs,
        num_kv_blocks=400,
        max_num_batched_tokens=128,
    )
    backlog(bench, "many", 500, 4, 8)
    backlog(bench, "long", 100, num_prompt, 20)
    policy = policy_of(bench)
    # Theorem 4.3: twice the larger of the dearest prompt and the cost of all that can run at once.
    bound = 2 * max(PREFILL_COST * num_prompt, DECODE_COST * max_num_seqs * (num_prompt + 20))
    gaps = []
    while policy.service("long") < 4 * bound:
        bench.step()
        gaps.append(abs(policy.service("many") - policy.service("long")))
    assert bench.scheduler.stats().num_waiting > 100  # both are backlogged to the end
    assert max(gaps) <= bound


def test_weight_gives_a_tenant_so_many_times_the_tokens() -> None:
    bench = Bench(
        scheduling_policy="fair",
        max_num_seqs=2,
        num_kv_blocks=400,
        tenants=(TenantConfig("gold", weight=3.0),),
    )
    backlog(bench, "gold", 300, 2, 4)
    backlog(bench, "iron", 300, 2, 4)
    for _ in range(400):
        bench.step()
    gold, iron = (
        sum(len(bench.tokens_of(f"{t}{i}")) for i in range(300)) for t in ("gold", "iron")
    )
    assert gold / iron == pytest.approx(3.0, rel=0.1)


def test_idle_tenant_gains_no_credit() -> None:
    bench = Bench(scheduling_policy="fair", max_num_seqs=1, num_kv_blocks=400)
    backlog(bench, "busy", 100, 4, 8)
    bench.add(make_request("early", 4, max_tokens=8, tenant="idle"))
    for _ in range(300):
        bench.step()
    backlog(bench, "idle", 50, 4, 8)
    before = len(bench.batches)
    for _ in range(160):
        bench.step()
    served = [next(iter(batch)) for batch in bench.batches[before:]]
    share = sum(name.startswith("idle") for name in served) / len(served)
    assert share == pytest.approx(0.5, abs=0.06)


def test_tenant_at_its_limit_of_running_requests_holds_up_nobody() -> None:
    bench = Bench(max_num_seqs=4, tenants=(TenantConfig("bulk", max_running=1),))
    backlog(bench, "bulk", 10, 4, 8)
    bench.add(make_request("other", 4, max_tokens=8, tenant="web"))
    bench.step()
    assert list(bench.batches[0]) == ["bulk0", "other"]
