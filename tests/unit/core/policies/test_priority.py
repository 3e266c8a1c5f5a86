"""Urgent requests first, without starving the others or swapping back and forth."""

from __future__ import annotations

from tests.fakes import Bench, expected_tokens, make_request

from chairlift.config import TenantConfig


def bench(**options: int | float) -> Bench:
    return Bench(scheduling_policy="priority", **options)  # type: ignore[arg-type]


def test_lower_value_goes_first_and_ties_go_by_arrival() -> None:
    b = bench(max_num_seqs=1)
    priorities = {"a": 2, "b": 1, "c": 1, "d": 0}
    b.add(*(make_request(n, max_tokens=1, priority=p) for n, p in priorities.items()))
    b.run()
    assert [next(iter(batch)) for batch in b.batches] == ["d", "b", "c", "a"]


def test_urgent_request_takes_the_slot_of_a_running_less_urgent_one() -> None:
    b = bench(max_num_seqs=1)
    slow = make_request("slow", 5, max_tokens=50, priority=1)
    b.add(slow)
    b.step()
    b.add(make_request("urgent", 3, max_tokens=2, priority=0, arrival_time_s=b.now_s))
    plan = b.step()
    assert plan.preempted_request_ids == ["slow"]
    assert list(b.batches[-1]) == ["urgent"]
    b.run()
    assert b.tokens_of("slow") == expected_tokens(slow)


def test_equals_never_swap() -> None:
    b = bench(max_num_seqs=1)
    b.add(make_request("a", max_tokens=20, priority=1))
    b.step()
    b.add(make_request("b", max_tokens=20, priority=1, arrival_time_s=b.now_s))
    b.run()
    assert b.scheduler.stats().num_preemptions_total == 0


def test_no_more_victims_than_the_blocks_need() -> None:
    """S5"""
    b = bench(num_kv_blocks=9, block_size=4)
    b.add(*(make_request(f"v{i}", 10, max_tokens=2, priority=5) for i in range(3)))
    b.step()
    b.add(make_request("urgent", 12, max_tokens=1, priority=0, arrival_time_s=b.now_s))
    plan = b.step()
    assert plan.preempted_request_ids == ["v2"]
    assert "urgent" in b.batches[-1]


def test_nobody_is_preempted_when_even_all_together_would_not_be_enough() -> None:
    b = bench(num_kv_blocks=9, block_size=4)
    b.add(make_request("important", 17, max_tokens=4, priority=0))
    b.add(make_request("low", 10, max_tokens=4, priority=5))
    b.step()
    b.add(make_request("urgent", 30, max_tokens=1, priority=1, arrival_time_s=b.now_s))
    assert b.step().preempted_request_ids == []


def test_least_urgent_request_starts_within_the_aging_bound() -> None:
    """S7"""
    aging_s, gap = 5.0, 3
    b = bench(max_num_seqs=1, priority_aging_s=aging_s)
    b.add(make_request("patient", max_tokens=1, priority=gap))
    for i in range(60):
        b.add(make_request(f"u{i}", max_tokens=1, priority=0, arrival_time_s=b.now_s))
        b.add(make_request(f"w{i}", max_tokens=1, priority=0, arrival_time_s=b.now_s))
        b.step()
    started = next(i for i, batch in enumerate(b.batches) if "patient" in batch)
    # All that came in the first gap * aging seconds may go before it, two in each second.
    assert gap * aging_s <= started <= 2 * gap * aging_s + 2


def test_nobody_gives_way_to_a_request_whose_tenant_may_not_run_more() -> None:
    b = Bench(
        scheduling_policy="priority", max_num_seqs=2, tenants=(TenantConfig("b", max_running=1),)
    )
    b.add(make_request("low", max_tokens=9, priority=1))
    b.add(make_request("b0", max_tokens=9, tenant="b"))
    b.step()
    b.add(make_request("b1", max_tokens=9, tenant="b", arrival_time_s=b.now_s))
    assert b.step().preempted_request_ids == []


def test_nobody_gives_way_in_a_static_batch() -> None:
    b = Bench(scheduling_policy="priority", max_num_seqs=1, batching="static")
    b.add(make_request("low", max_tokens=9, priority=1))
    b.step()
    b.add(make_request("urgent", max_tokens=1, arrival_time_s=b.now_s))
    assert b.step().preempted_request_ids == []
