"""A workload through one simulated engine or a fleet of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, repeat

from chairlift.errors import ConfigError
from chairlift.inputs import NOBODY, Account, CoreRequest
from chairlift.sampling_params import SamplingParams
from chairlift.simulate.replica import Replica, ReplicaSetup, SimulatedRequest
from chairlift.simulate.request_log import Refusal, RequestLog
from chairlift.simulate.routing import RoutingPolicy, make_router
from chairlift.simulate.tenants import TenantResult, tenant_results
from chairlift.workload.request_metrics import (
    PERCENTILES,
    RequestTimes,
    Summary,
    TokenGaps,
    summarise_requests,
)
from chairlift.workload.workload import Workload

_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of a simulation.

    Attributes:
        num_refused: Requests that could never fit, found the waiting queue full, or would start or
            started too late.
        num_refused_by_quota: Requests for which their tenant had no room left.
        num_prompt_tokens: Computed, once per prompt; those found in the prefix cache do not count.
        replica_steps: Steps of each replica.
        duration_s: From the first arrival to the end of the last step.
        tenants: What each tenant got; empty if nobody has an account.
    """

    times: RequestTimes
    gaps: TokenGaps
    num_refused: int
    num_refused_by_quota: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_preemptions: int
    prefix_cache_hit_tokens: int
    prefix_cache_queried_tokens: int
    replica_steps: tuple[int, ...]
    duration_s: float
    tenants: tuple[TenantResult, ...] = ()

    @property
    def request_throughput_per_s(self) -> float:
        """Finished requests per second."""
        return len(self.times) / self.duration_s if self.duration_s else 0.0

    @property
    def output_throughput_per_s(self) -> float:
        """Output tokens per second."""
        return self.num_output_tokens / self.duration_s if self.duration_s else 0.0

    @property
    def prefix_cache_hit_rate(self) -> float:
        """Share of the prompt tokens looked up that the prefix cache had."""
        queried = self.prefix_cache_queried_tokens
        return self.prefix_cache_hit_tokens / queried if queried else 0.0

    def summaries(self, percents: tuple[float, ...] = PERCENTILES) -> dict[str, Summary]:
        """Latencies in seconds, by metric."""
        return summarise_requests(self.times, self.gaps, percents)


def simulate(
    workload: Workload,
    setup: ReplicaSetup,
    num_replicas: int = 1,
    routing: RoutingPolicy = "round-robin",
) -> SimulationResult:
    """Run a workload through simulated engines until the last request has ended.

    Raises:
        ConfigError: ``num_replicas`` is below 1, or there is no such routing policy.
    """
    if num_replicas < 1:
        raise ConfigError(f"replicas must be at least 1, got {num_replicas}")
    router = make_router(routing, num_replicas)
    log = RequestLog(len(workload))
    replicas = [Replica(setup, log) for _ in range(num_replicas)]
    if routing == "round-robin":
        for number, replica in enumerate(replicas):
            _run_alone(replica, islice(_requests(workload), number, None, num_replicas))
    else:
        groups = _groups(workload)
        for request, group in zip(_requests(workload), groups, strict=True):
            moment_s = request.core_request.arrival_time_s
            for replica in replicas:
                replica.advance(moment_s)

            def loads(moment_s: float = moment_s) -> list[int]:
                return [replica.load_at(moment_s) for replica in replicas]

            replicas[router.choose(group, loads)].add(request)
    for replica in replicas:
        replica.advance(float("inf"))
    return _result(workload, replicas, log)


def _run_alone(replica: Replica, requests: Iterator[SimulatedRequest]) -> None:
    """Hand a replica its requests some at a time, so that not all are in memory at once."""
    while chunk := list(islice(requests, _CHUNK)):
        for request in chunk:
            replica.add(request)
        replica.advance(chunk[-1].core_request.arrival_time_s)


def _groups(workload: Workload) -> Iterable[int | None]:
    if workload.prefix_group is None:
        return [None] * len(workload)
    groups: list[int] = workload.prefix_group.tolist()
    return groups


def _accounts(workload: Workload) -> Iterator[Account]:
    if workload.account is None:
        return repeat(NOBODY, len(workload))
    return map(workload.accounts.__getitem__, workload.account.tolist())


def _requests(workload: Workload) -> Iterator[SimulatedRequest]:
    """The requests of a workload, in order of arrival."""
    columns = zip(workload.rows(), _groups(workload), _accounts(workload), strict=True)
    for number, (row, group, account) in enumerate(columns):
        arrival_s, num_prompt, num_output = row
        prompt = _prompt(number, num_prompt, group, workload.num_prefix_tokens)
        request = CoreRequest(
            str(number),
            prompt,
            _params(num_output),
            arrival_s,
            (),
            tenant=account.tenant,
            priority=account.priority,
        )
        yield SimulatedRequest(number, request, num_prompt + num_output)


@lru_cache(maxsize=4096)
def _params(num_output_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_output_tokens, ignore_eos=True)


def _prompt(number: int, num_tokens: int, group: int | None, num_common: int) -> tuple[int, ...]:
    """Token ids that two prompts share only as far as both have the same prefix group."""
    num_common = 0 if group is None else min(num_tokens, num_common)
    common = (2 * (group or 0),) * num_common
    return common + (2 * number + 1,) * (num_tokens - num_common)


def _result(workload: Workload, replicas: list[Replica], log: RequestLog) -> SimulationResult:
    stats = [replica.stats() for replica in replicas]
    refusals = log.refusals()
    end_s = max(replica.now_s for replica in replicas)
    start_s = float(workload.arrival_s[0]) if len(workload) else 0.0
    return SimulationResult(
        times=log.times(workload),
        gaps=log.gaps(),
        num_refused=int((refusals == Refusal.ENGINE).sum()),
        num_refused_by_quota=int((refusals == Refusal.QUOTA).sum()),
        num_prompt_tokens=sum(s.prompt_tokens_total for s in stats),
        num_output_tokens=sum(s.generation_tokens_total for s in stats),
        num_preemptions=sum(s.num_preemptions_total for s in stats),
        prefix_cache_hit_tokens=sum(s.prefix_cache_hit_tokens for s in stats),
        prefix_cache_queried_tokens=sum(s.prefix_cache_queried_tokens for s in stats),
        replica_steps=tuple(replica.num_steps for replica in replicas),
        duration_s=max(0.0, end_s - start_s),
        tenants=tenant_results(workload, log),
    )
