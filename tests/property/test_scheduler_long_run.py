"""A hundred thousand steps of hostile load, with every invariant checked after each of them.

Each case draws its own engine (limits, pool, tier, policy, modes) and its own load, then runs for
``STEPS_PER_CASE`` steps and on to the end of the last request.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from tests.fakes import Bench, expected_tokens, make_request

from chairlift.config import POLICIES, TenantConfig
from chairlift.core.request import Request, RequestStatus
from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason

NUM_STEPS = 100_000
NUM_CASES = 100
STEPS_PER_CASE = NUM_STEPS // NUM_CASES
AGING_S = 20.0


@dataclass
class Drive:
    """One engine under random load, and what has been seen of it."""

    rng: random.Random
    bench: Bench
    max_num_seqs: int
    budget: int
    max_preemptions: int
    max_head_passes: int
    most_live: int
    live: dict[str, CoreRequest] = field(default_factory=dict)
    requests: dict[str, CoreRequest] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    preempted: Counter[str] = field(default_factory=Counter)
    num_idle: int = 0
    num_steps: int = 0

    def load(self) -> None:
        """Maybe let requests arrive, maybe cancel one."""
        rng = self.rng
        while len(self.live) < self.most_live and rng.random() < 0.4:
            request = self._draw()
            self.bench.add(request)
            self.live[request.request_id] = self.requests[request.request_id] = request
        if self.live and rng.random() < 0.02:
            name = rng.choice(list(self.live))
            self.bench.abort(name)
            self.cancelled.add(name)

    def _draw(self) -> CoreRequest:
        rng, pool = self.rng, self.bench.scheduler.kv_cache
        room = pool.pool.num_blocks * pool.block_size
        num_prompt = rng.randint(1, max(1, room // rng.choice([1, 2, 4, 4, 8])))
        most = room + 1 - num_prompt
        name = f"r{len(self.requests)}"
        own = make_request(name, num_prompt).prompt_token_ids
        shared = rng.choice([0, 0, rng.randint(0, 20)])
        return make_request(
            name,
            [*range(500, 500 + shared), *own][:num_prompt],
            max_tokens=min(most, rng.choice([1, 4, 10, 20, 40])),
            arrival_time_s=self.bench.now_s,
            priority=rng.randint(-2, 2),
            tenant=rng.choice(["", "a", "b"]),
        )

    def step(self) -> None:
        """Run one step and check everything."""
        waits = bool(self.live)
        plan = self.bench.step()
        self.num_steps += 1
        self.num_idle = self.num_idle + 1 if waits and plan.is_empty else 0
        assert self.num_idle <= 1, "requests wait and nothing runs"
        self.preempted.update(plan.preempted_request_ids)
        for name in [n for n in self.live if n in self.bench.returned_at]:
            del self.live[name]
        self._check_plan(plan)
        self._check_blocks()
        self._check_places()

    def _check_plan(self, plan: SchedulerOutput) -> None:
        rows = [row.request_id for row in plan.scheduled]
        assert len(rows) == len(set(rows)) <= self.max_num_seqs
        assert sum(row.num_scheduled_tokens for row in plan.scheduled) <= self.budget
        assert not set(rows) & set(plan.preempted_request_ids)
        assert max(self.preempted.values(), default=0) <= self.max_preemptions
        assert sum(name == "b" for name in self.bench.tenants_running()) <= 2

    def _check_blocks(self) -> None:
        """Live, cached and free blocks add up; each is held as often as it is in a table."""
        scheduler = self.bench.scheduler
        stats, kv_cache = scheduler.stats(), scheduler.kv_cache
        kv_cache.pool.check_integrity()
        kv_cache.left_behind.check_integrity()
        counts = (stats.num_live_blocks, stats.num_cached_blocks, stats.num_free_blocks)
        assert min(counts) >= 0 and sum(counts) == kv_cache.pool.num_blocks
        assert 0 <= stats.num_swapped_blocks <= stats.num_swap_blocks
        held = Counter(b for r in self._running() for b in kv_cache.block_ids(r))
        for block_id in range(kv_cache.pool.num_blocks):
            assert kv_cache.pool.ref_count(block_id) == held[block_id]

    def _check_places(self) -> None:
        """Each live request runs or waits, none does both."""
        stats = self.bench.scheduler.stats()
        running = {request.request_id for request in self._running()}
        assert len(running) == stats.num_running <= self.max_num_seqs
        assert running <= self.live.keys()
        assert stats.num_waiting == len(self.live) - len(running) >= 0
        for request in self.bench.scheduler._requests.values():
            if request.status is RequestStatus.WAITING:
                assert request.num_times_passed <= self.max_head_passes

    def _running(self) -> list[Request]:
        return self.bench.scheduler._running

    def finish(self) -> None:
        """Run to the end of the last request, and check what each has got."""
        while self.bench.scheduler.has_work:
            self.step()
            assert self.num_steps < 20 * STEPS_PER_CASE, "no end in sight"
        stats = self.bench.scheduler.stats()
        assert stats.num_live_blocks == stats.num_swapped_blocks == 0
        assert self.bench.runner.token_ids == {}
        for name, request in self.requests.items():
            reasons = [o.finish_reason for o in self.bench.outputs[name] if o.finish_reason]
            tokens, expected = self.bench.tokens_of(name), expected_tokens(request)
            assert len(reasons) == 1
            if reasons == [FinishReason.LENGTH]:
                assert tokens == expected
            else:
                assert name in self.cancelled and tokens == expected[: len(tokens)]


def drive_of(case: int) -> Drive:
    """The engine and the load of a case."""
    rng = random.Random(case)
    max_num_seqs = rng.randint(1, 6)
    budget = max_num_seqs + rng.choice([0, 3, 30])
    max_preemptions = rng.randint(0, 4)
    max_head_passes = rng.choice([0, 2, 8])
    bench = Bench(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        num_kv_blocks=rng.randint(4, 16),
        block_size=rng.choice([1, 3, 4, 8]),
        enable_prefix_caching=rng.random() < 0.5,
        num_swap_blocks=rng.choice([0, 1, 4, 100]),
        preemption_mode=rng.choice(["recompute", "swap", "auto"]),
        max_preemptions=max_preemptions,
        scheduling_policy=POLICIES[case % len(POLICIES)],
        priority_aging_s=AGING_S,
        max_head_passes=max_head_passes,
        tenants=(TenantConfig("a", weight=2.0), TenantConfig("b", max_running=2)),
    )
    most_live = rng.randint(4, 12)
    return Drive(rng, bench, max_num_seqs, budget, max_preemptions, max_head_passes, most_live)


@pytest.mark.parametrize("part", range(4))
def test_nothing_breaks_in_a_hundred_thousand_steps(part: int) -> None:
    totals: Counter[str] = Counter()
    for case in range(part, NUM_CASES, 4):
        drive = drive_of(case)
        for _ in range(STEPS_PER_CASE):
            drive.load()
            drive.step()
        drive.finish()
        stats = drive.bench.scheduler.stats()
        totals["steps"] += drive.num_steps
        totals["preemptions"] += stats.num_preemptions_total
        totals["swapped out"] += stats.swapped_out_blocks_total
        totals["swapped in"] += stats.swapped_in_blocks_total
        totals["recovered"] += stats.prefix_cache_recovered_tokens
        totals["requests"] += len(drive.requests)
    print(totals)
    assert totals["steps"] >= NUM_STEPS // 4
    assert min(totals.values()) > 100, totals
