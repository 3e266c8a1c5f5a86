"""How many engines a load needs, and with which limits, so that objectives are kept.

For each pair of limits the highest rate that one engine bears is found by bisection on simulated
runs, in which the objectives are kept and the line of waiting requests does not keep growing. The
fleet that follows from it is then simulated as a whole, with its routing, and grown until the same
holds there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chairlift.errors import ConfigError
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.routing import RoutingPolicy
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.workload.objectives import Objective, percents_of
from chairlift.workload.workload import Workload

LOW_SHARE = 0.05
"""Of the rate that an engine is guessed to bear: a load at which hardly anybody waits."""

HIGH_SHARE = 1.2
"""Of that guess, the rate at one of all requests given at once, which falls short by their last
ones; no higher rate is tried, since in a short run it could pass for one that is borne."""

SEARCH_STEPS = 7
"""Halvings of the range in which the highest rate lies; with 7 it is known to a hundredth."""

MAX_DRIFT = 1.4
"""Where the last third of the requests take so many times as long as the third before, on average,
a line grows. (Of a line that grows evenly from nothing it would be 5/3.)"""

GROWTH, MAX_GROWTHS = 1.05, 12

WorkloadAtRate = Callable[[float, int], Workload]
"""Makes a workload of a rate in requests per second and a number of requests."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be planned.

    Attributes:
        rate_per_s: Requests per second of the whole fleet.
        objectives: About percentiles or means.
        num_requests: Of each simulated run of one engine; a fleet gets as many for each of its
            engines.
    """

    rate_per_s: float
    objectives: tuple[Objective, ...]
    make_workload: WorkloadAtRate
    num_requests: int
    routing: RoutingPolicy = "round-robin"

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < math.inf:
            raise ConfigError(f"rate must be above 0 and finite, got {self.rate_per_s}")
        if self.num_requests < 100:
            raise ConfigError(f"a plan needs at least 100 requests, got {self.num_requests}")
        for objective in self.objectives:
            if objective.percent is None:
                objective.value_s({})


@dataclass(frozen=True, slots=True)
class Trial:
    """One engine at one rate.

    Attributes:
        values_s: What each objective is about, in the order of the objectives.
    """

    rate_per_s: float
    values_s: tuple[float, ...]
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one engine bears under one pair of limits.

    Attributes:
        rate_per_s: The highest rate found at which the objectives are kept; 0: none is.
        trials: All rates that were tried, ascending; the first is hardly any load, unless nothing
            can be served at all.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    rate_per_s: float
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet that was simulated as a whole and keeps the objectives.

    Attributes:
        values_s: What each objective is about, of the whole fleet.
    """

    capacity: Capacity
    num_replicas: int
    values_s: tuple[float, ...]


def find_capacity(request: PlanRequest, setup: ReplicaSetup) -> Capacity:
    """Find the highest rate that one engine bears.

    Tried are hardly any load, the highest rate that can be borne for long, and rates between.
    """
    everything_at_once = simulate(request.make_workload(math.inf, request.num_requests), setup)
    guess = everything_at_once.request_throughput_per_s
    trials: list[Trial] = []

    def is_kept(rate_per_s: float) -> bool:
        trials.append(_try(request, setup, rate_per_s))
        return trials[-1].is_kept

    low = high = LOW_SHARE * guess
    if guess > 0.0 and is_kept(low):
        high = HIGH_SHARE * guess
        if is_kept(high):
            low = high
        for _ in range(SEARCH_STEPS if low < high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if is_kept(middle) else (low, middle)
    else:
        low = 0.0
    trials.sort(key=lambda trial: trial.rate_per_s)
    config = setup.scheduler
    return Capacity(config.max_num_seqs, config.max_num_batched_tokens, low, tuple(trials))


def _try(request: PlanRequest, setup: ReplicaSetup, rate_per_s: float) -> Trial:
    result = simulate(request.make_workload(rate_per_s, request.num_requests), setup)
    values_s, is_kept = judge(result, request.objectives)
    return Trial(rate_per_s, values_s, is_kept)


def judge(
    result: SimulationResult, objectives: tuple[Objective, ...]
) -> tuple[tuple[float, ...], bool]:
    """What the objectives are about, and whether all are kept.

    A request that an engine refused breaks them, and a line that grows does; requests that their
    tenant's quotas refused do not.
    """
    summaries = result.summaries(percents_of(objectives))
    values_s = tuple(objective.value_s(summaries) for objective in objectives)
    is_kept = all(objective.is_met(summaries) for objective in objectives)
    return values_s, is_kept and result.num_refused == 0 and drift(result) < MAX_DRIFT


def drift(result: SimulationResult) -> float:
    """How many times as long the last third of the requests took as the third before, by means."""
    took_s = result.times.e2el_s
    third = len(took_s) // 3
    if third == 0:
        return 1.0
    return float(took_s[-third:].mean() / took_s[-2 * third : -third].mean())


def candidates(
    setup: ReplicaSetup, max_num_seqs: Sequence[int], max_num_batched_tokens: Sequence[int]
) -> list[ReplicaSetup]:
    """Every pair of limits that goes together.

    Raises:
        ConfigError: None does.
    """
    found = [
        replace(
            setup,
            scheduler=replace(setup.scheduler, max_num_seqs=seqs, max_num_batched_tokens=tokens),
        )
        for seqs in max_num_seqs
        for tokens in max_num_batched_tokens
        if 1 <= seqs <= tokens
    ]
    if not found:
        raise ConfigError(
            f"no max_num_seqs of {list(max_num_seqs)} is at least 1 and at most one of the "
            f"max_num_batched_tokens {list(max_num_batched_tokens)}"
        )
    return found


def best_of(capacities: Sequence[Capacity]) -> Capacity | None:
    """The one that bears most; ``None`` if none bears anything."""
    best = max(capacities, key=lambda capacity: capacity.rate_per_s)
    return best if best.rate_per_s > 0 else None


def size_fleet(request: PlanRequest, setup: ReplicaSetup, capacity: Capacity) -> Fleet | None:
    """Simulate the fleet that a capacity asks for, and let it grow until it keeps the objectives.

    Args:
        setup: Of the engine that has this capacity.

    Returns:
        ``None`` if the objectives are not kept even by a fleet half as large again.
    """
    num_replicas = math.ceil(request.rate_per_s / capacity.rate_per_s)
    for _ in range(MAX_GROWTHS):
        num_requests = request.num_requests * num_replicas
        workload = request.make_workload(request.rate_per_s, num_requests)
        result = simulate(workload, setup, num_replicas, request.routing)
        values_s, is_kept = judge(result, request.objectives)
        if is_kept:
            return Fleet(capacity, num_replicas, values_s)
        num_replicas = max(num_replicas + 1, math.ceil(num_replicas * GROWTH))
    return None
