"""Whether a request that gives way is swapped or computed again, and why."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, make_limits, make_request

from chairlift.config import PreemptionMode, SchedulerConfig
from chairlift.core.preemption import Preemption, PreemptionChooser
from chairlift.core.request import Request
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize
from chairlift.outputs import RequestEvent


def learned(token_s: float) -> StepCost:
    """Costs learned from steps that take a millisecond and so much for each token."""
    cost = StepCost()
    for i in range(64):
        num_tokens = 1 + 16 * (i % 8)
        cost.observe(StepSize(num_tokens, num_tokens, 1, 1), 1e-3 + token_s * num_tokens)
    return cost


def choice(
    cost: StepCost, mode: PreemptionMode = "auto", num_swap_blocks: int = 8, num_tokens: int = 40
) -> Preemption:
    """What is done with a request of so many computed tokens; a block takes 0.1 ms to copy."""
    config = SchedulerConfig(preemption_mode=mode)
    request = Request(make_request("r", num_tokens + 1), 100)
    request.num_computed_tokens = num_tokens
    return PreemptionChooser(config, make_limits(num_swap_blocks=num_swap_blocks), cost).choose(
        request
    )


def test_auto_swaps_when_computing_takes_longer_than_copying_there_and_back() -> None:
    how = choice(learned(token_s=1e-3))
    assert how.mode == "swap"
    assert how.estimate.startswith("swap 2 ms, recompute 4")


def test_auto_computes_again_when_that_is_quicker() -> None:
    how = choice(learned(token_s=1e-5))
    assert how.mode == "recompute"
    assert how.estimate.startswith("swap 2 ms, recompute 0.4")


def test_auto_swaps_while_nothing_is_known_of_the_cost_of_steps() -> None:
    assert choice(StepCost()) == Preemption(True)


@pytest.mark.parametrize("mode", ["auto", "recompute", "swap"])
def test_without_a_second_tier_everything_is_computed_again(mode: PreemptionMode) -> None:
    assert choice(learned(1e-3), mode, num_swap_blocks=0).mode == "recompute"


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_mode_that_was_set_is_kept_to_whatever_it_costs(mode: PreemptionMode) -> None:
    for token_s in (1e-5, 1e-3):
        assert choice(learned(token_s), mode) == Preemption(mode == "swap")


def events_of(bench: Bench, request_id: str) -> list[RequestEvent]:
    (report,) = bench.scheduler.explain(lambda name: name == request_id)
    return list(report.events)


def test_the_event_log_says_what_was_done_and_what_it_would_have_cost() -> None:
    bench = Bench(
        num_kv_blocks=8,
        num_swap_blocks=8,
        max_num_batched_tokens=14,
        enable_prefix_caching=False,
        step_cost=learned(1e-2),
    )
    bench.add(make_request("a", 14, max_tokens=19), make_request("b", 7, max_tokens=12))
    bench.run()
    events = events_of(bench, "b")
    preempted = next(event for event in events if event.kind == "preempted")
    assert preempted.details["mode"] == "swap"
    assert (preempted.details["by"], preempted.details["why"]) == ("a", "kv_blocks")
    assert str(preempted.details["estimate"]).startswith("swap 0.")
    resumed = next(event for event in events if event.kind == "resumed")
    assert resumed.details["swapped_tokens"] == 4 * bench.scheduler.stats().swapped_in_blocks_total
    assert int(resumed.details["swapped_tokens"]) > 0


def test_without_an_estimate_the_event_log_names_none() -> None:
    bench = Bench(num_kv_blocks=8)
    bench.add(make_request("a", 14, max_tokens=19), make_request("b", 7, max_tokens=12))
    bench.run()
    preempted = next(e for e in events_of(bench, "b") if e.kind == "preempted")
    assert dict(preempted.details) == {"mode": "recompute", "by": "b", "why": "kv_blocks"}
