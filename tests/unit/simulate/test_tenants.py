"""Tenants share a simulated engine by the policy, and their quotas act in simulated time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.engine.tenants import Tenant
from chairlift.errors import ConfigError
from chairlift.inputs import Account
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.tenants import TenantMix, TenantOptions, TenantResult
from chairlift.workload.options import WorkloadOptions
from chairlift.workload.workload import Workload

LIMITS = EngineLimits(1 << 30, 5000, 4, 10_000, 10_000)


def setup_of(*tenants: Tenant, cost: CostModel | None = None, **options: object) -> ReplicaSetup:
    """A small engine whose steps take one second, and these tenants."""
    config = SchedulerConfig(
        max_num_batched_tokens=512,
        tenants=tuple(tenant.scheduler_config for tenant in tenants),
        **options,  # type: ignore[arg-type]
    )
    return ReplicaSetup(config, LIMITS, cost or CostModel(1.0), tenants=tenants)


def workload_of(*rows: tuple[float, int, int, str]) -> Workload:
    """Requests with their arrival, prompt tokens, output tokens and tenant."""
    arrivals, prompts, outputs, names = zip(*rows, strict=True)
    accounts = tuple(Account(name) for name in dict.fromkeys(names))
    numbers = np.array([accounts.index(Account(name)) for name in names])
    return Workload(
        np.array(arrivals), np.array(prompts), np.array(outputs), account=numbers, accounts=accounts
    )


def by_name(result: SimulationResult) -> dict[str, TenantResult]:
    return {tenant.name: tenant for tenant in result.tenants}


def test_tokens_a_minute_flow_in_as_simulated_time_passes() -> None:
    """A token a second, 60 at most: 90 make a debt of 30, at 45 s still and at 80 s no more."""
    tenant = Tenant("a", ("k",), tokens_per_minute=60)
    rows = [(0.0, 50, 40), (45.0, 1, 1), (80.0, 1, 1), (81.0, 1, 1)]
    result = simulate(workload_of(*((*row, "a") for row in rows)), setup_of(tenant))
    assert result.tenants[0].times.arrival_s.tolist() == [0.0, 80.0, 81.0]
    assert (result.num_refused, result.num_refused_by_quota) == (0, 1)


def test_requests_without_a_first_token_fill_their_tenants_queue_and_nobody_elses() -> None:
    tenant = Tenant("a", ("k",), max_queued=1)
    workload = workload_of(
        (0.0, 1, 6, "a"), (1.5, 1, 1, "a"), (2.5, 1, 1, "a"), (2.6, 1, 1, "b"), (8.5, 1, 1, "a")
    )
    result = simulate(workload, setup_of(tenant, Tenant("b", ("l",)), max_num_seqs=1))
    found = by_name(result)
    # The second waits for the slot until 6 s, so the third finds the queue full.
    assert found["a"].times.arrival_s.tolist() == [0.0, 1.5, 8.5]
    assert (found["a"].num_requests, found["a"].num_refused_by_quota) == (4, 1)
    assert (found["b"].num_requests, found["b"].num_refused_by_quota) == (1, 0)


def test_max_running_keeps_a_tenant_waiting_beside_free_slots() -> None:
    tenant = Tenant("a", ("k",), max_running=1)
    workload = workload_of((0.0, 1, 3, "a"), (0.0, 1, 3, "a"), (0.0, 1, 3, "b"))
    result = simulate(workload, setup_of(tenant, Tenant("b", ("l",))))
    assert result.times.last_token_s.tolist() == [3.0, 6.0, 3.0]


def overloaded(policy: str, mix: TenantMix) -> dict[str, TenantResult]:
    """Twice as many requests as an engine with 8 slots serves, half of them of each tenant."""
    work = WorkloadOptions(
        num_requests=400, rate=1.0, prompt_lengths="20", output_lengths="uniform:10-22"
    )
    setup = setup_of(*mix.tenants, max_num_seqs=8, scheduling_policy=policy)
    return by_name(simulate(mix.assign(work.build(), work.seed), setup))


def test_the_fair_policy_gives_tenants_service_by_weight() -> None:
    names = TenantOptions(tenant_mix="heavy=1,light=1").load()
    heavy, light = names.tenants
    mix = replace(names, tenants=(replace(heavy, weight=3.0), light))
    first_half = {
        name: int((tenant.times.last_token_s < 400.0).sum())
        for name, tenant in overloaded("fair", mix).items()
    }
    assert first_half["heavy"] / first_half["light"] == pytest.approx(3.0, rel=0.15)


def test_the_priority_policy_starts_the_urgent_tenant_first() -> None:
    mix = TenantOptions(tenant_mix="a=1,b=3", tenant_priorities="a=-100").load()
    found = overloaded("priority", mix)
    assert found["a"].summaries()["queue"].percentile(95) < 30.0
    assert found["b"].summaries()["queue"].percentile(50) > 100.0
    equal = overloaded("fcfs", mix)
    medians = [equal[name].summaries()["queue"].percentile(50) for name in "ab"]
    assert medians[0] == pytest.approx(medians[1], rel=0.1)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.1, 1.0, 5.0]),
    policy=st.sampled_from(["fcfs", "priority", "fair"]),
    max_num_seqs=st.sampled_from([1, 4]),
)
def test_stretches_change_nothing_for_tenants(
    seed: int, rate: float, policy: str, max_num_seqs: int
) -> None:
    """Whose request is refused by quota, and every moment, is as with single steps."""
    tenants = (
        Tenant("a", ("k",), max_queued=3, max_running=2),
        Tenant("b", ("l",), tokens_per_minute=300),
        Tenant("c", ("m",), weight=2.0, priority_ceiling=5),
    )
    work = WorkloadOptions(
        num_requests=60, rate=rate, prompt_lengths="5", output_lengths="uniform:1-40", seed=seed
    )
    mix = TenantMix(tenants, {tenant.account(None): 1.0 for tenant in tenants})
    workload = mix.assign(work.build(), seed)
    cost = CostModel(0.3, 0.01, 0.0001)
    setup = setup_of(*tenants, cost=cost, max_num_seqs=max_num_seqs, scheduling_policy=policy)
    fast = simulate(workload, setup)
    slow = simulate(workload, replace(setup, use_stretches=False))
    assert fast.times.arrival_s.tolist() == slow.times.arrival_s.tolist()
    assert fast.times.first_token_s.tolist() == pytest.approx(slow.times.first_token_s.tolist())
    assert fast.times.last_token_s.tolist() == pytest.approx(slow.times.last_token_s.tolist())
    assert fast.num_refused_by_quota == slow.num_refused_by_quota


def test_the_same_seed_gives_each_tenant_the_same_requests() -> None:
    mix = TenantOptions(tenant_mix="a=3,b=1").load()
    workload = WorkloadOptions(num_requests=2000).build()
    first, again = mix.assign(workload, 5), mix.assign(workload, 5)
    assert first.account is not None and again.account is not None
    assert first.account.tolist() == again.account.tolist()
    assert (first.account == 0).mean() == pytest.approx(0.75, abs=0.03)


def test_a_tenants_file_is_the_servers_own(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        '[[tenant]]\nname = "a"\napi_keys = ["k"]\nweight = 4\npriority_ceiling = 3\n'
        '[[tenant]]\nname = "b"\napi_keys = ["l"]\nmax_running = 2\n'
    )
    mix = TenantOptions(tenants_file=path, tenant_priorities="b=-2").load()
    assert mix.shares == {Account("a", 3): 1.0, Account("b", -2): 1.0}
    known = EngineOptions().setup(SchedulerConfig(), mix.tenants).scheduler.tenants
    assert [(t.name, t.weight, t.max_running) for t in known] == [("a", 4.0, 0), ("b", 1.0, 2)]
    with pytest.raises(ConfigError, match="priority must be at least 3 for tenant 'a'"):
        TenantOptions(tenants_file=path, tenant_priorities="a=1").load()


@pytest.mark.parametrize(
    ("mix", "priorities", "message"),
    [
        ("gold", "", "tenant_mix must be NAME=NUMBER,NAME=NUMBER, got 'gold'"),
        ("gold=much", "", "tenant_mix must be NAME=NUMBER"),
        ("=1", "", "tenant_mix must be NAME=NUMBER"),
        ("a=0", "", "the share of 'a' in tenant_mix must be above 0, got 0.0"),
        ("a=nan", "", "the share of 'a' in tenant_mix must be above 0, got nan"),
        ("a=1", "b=1", "there is no tenant 'b'; the tenants are a"),
        ("", "b=1", "there is no tenant 'b'; the tenants are none; give tenants_file"),
        ("a=1", "a=1.5", "tenant_priorities must be NAME=NUMBER"),
        ("a=1", "a=5000", "tenant_priorities: priority must be between -1000 and 1000"),
    ],
)
def test_impossible_mixes_are_refused(mix: str, priorities: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TenantOptions(tenant_mix=mix, tenant_priorities=priorities).load()
    assert message in str(caught.value)
