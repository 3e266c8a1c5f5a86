"""Tenants of simulated engines as they are described on the command line, and what each got."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from chairlift.engine.tenants import Tenant, read_tenants
from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.inputs import Account
from chairlift.simulate.request_log import Refusal, RequestLog
from chairlift.workload.request_metrics import (
    PERCENTILES,
    RequestTimes,
    Summary,
    TokenGaps,
    summarise_requests,
)
from chairlift.workload.workload import Workload

_Value = TypeVar("_Value", int, float)
_STREAM = 2  # of the random numbers of a seed, apart from those of lengths, arrivals and prefixes


@dataclass(frozen=True, slots=True)
class TenantOptions:
    """Who sends the requests.

    Attributes:
        tenants_file: TOML file of tenants with their weights and limits, as chairlift serve takes
            it. Quotas act in simulated time, on each engine by itself.
        tenant_mix: Share of the requests that each tenant sends, as in gold=1,free=3. Not set: all
            tenants of the file send as many. Without a file, tenants have no limits.
        tenant_priorities: Priorities that tenants ask for, as in gold=-5,free=10, for the priority
            policy. Not set: 0, or the tenant's ceiling if that is higher.
    """

    tenants_file: Path | None = None
    tenant_mix: str = ""
    tenant_priorities: str = ""

    def load(self) -> TenantMix:
        """Read the file and the shares.

        Raises:
            ConfigError: The file cannot be used, a share or priority is none, or a tenant is named
                that is not there.
        """
        shares = _numbers("tenant_mix", self.tenant_mix, float)
        priorities = _numbers("tenant_priorities", self.tenant_priorities, int)
        if self.tenants_file is None:
            tenants = tuple(Tenant(name, (name,)) for name in shares)
        else:
            tenants = read_tenants(self.tenants_file)
        names = [tenant.name for tenant in tenants]
        for name in [*shares, *priorities]:
            if name not in names:
                known = ", ".join(names) or "none; give tenants_file or tenant_mix"
                raise ConfigError(f"there is no tenant {name!r}; the tenants are {known}")
        for name, share in shares.items():
            if not 0.0 < share < math.inf:
                raise ConfigError(
                    f"the share of {name!r} in tenant_mix must be above 0, got {share}"
                )
        senders = [tenant for tenant in tenants if tenant.name in shares or not shares]
        accounts = {
            _account(tenant, priorities.get(tenant.name)): shares.get(tenant.name, 1.0)
            for tenant in senders
        }
        return TenantMix(tenants, accounts)


def _numbers(field: str, text: str, kind: Callable[[str], _Value]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.rpartition("=")
        try:
            found[name.strip()] = kind(number)
        except ValueError:
            name = ""
        if not name.strip():
            raise ConfigError(f"{field} must be NAME=NUMBER,NAME=NUMBER, got {text!r}")
    return found


def _account(tenant: Tenant, priority: int | None) -> Account:
    try:
        return tenant.account(priority)
    except InvalidParameterError as error:
        raise ConfigError(f"tenant_priorities: {error}") from None


@dataclass(frozen=True, slots=True)
class TenantMix:
    """Who there is, and who sends how much.

    Attributes:
        tenants: With their limits.
        shares: How often each account sends a request, relative to the others; empty: nobody has
            an account.
    """

    tenants: tuple[Tenant, ...]
    shares: dict[Account, float]

    def assign(self, workload: Workload, seed: int) -> Workload:
        """Let each request of a workload be sent by one of the accounts."""
        if not self.shares:
            return workload
        return workload.with_accounts(self.shares, np.random.default_rng([seed, _STREAM]))


@dataclass(frozen=True, slots=True)
class TenantResult:
    """What one tenant got out of a simulation.

    Attributes:
        num_requests: That it sent.
        num_refused: Of those, refused by the engine, whoever had sent them.
        num_refused_by_quota: Of those, refused by its own quotas.
        num_output_tokens: Of its requests that finished.
    """

    name: str
    num_requests: int
    num_refused: int
    num_refused_by_quota: int
    num_output_tokens: int
    times: RequestTimes

    def output_throughput_per_s(self, duration_s: float) -> float:
        """Its output tokens per second of a run that took ``duration_s``."""
        return self.num_output_tokens / duration_s if duration_s else 0.0

    def summaries(self, percents: tuple[float, ...] = PERCENTILES) -> dict[str, Summary]:
        """Latencies in seconds, by metric; gaps between tokens are not kept by tenant."""
        summaries = summarise_requests(self.times, TokenGaps(), percents)
        del summaries["itl"]
        return summaries


def tenant_results(workload: Workload, log: RequestLog) -> tuple[TenantResult, ...]:
    """What each tenant of a workload got, in the order of its accounts."""
    if workload.account is None:
        return ()
    return tuple(
        _result_of(account.tenant, workload.account == index, workload, log)
        for index, account in enumerate(workload.accounts)
    )


def _result_of(
    name: str, is_own: NDArray[np.bool_], workload: Workload, log: RequestLog
) -> TenantResult:
    refusals = log.refusals()[is_own]
    times = log.times(workload).where(is_own[log.has_ended()])
    return TenantResult(
        name,
        num_requests=int(is_own.sum()),
        num_refused=int((refusals == Refusal.ENGINE).sum()),
        num_refused_by_quota=int((refusals == Refusal.QUOTA).sum()),
        num_output_tokens=int(times.num_output_tokens.sum()),
        times=times,
    )
