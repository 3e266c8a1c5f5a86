"""What a request has to pass before anything is done for it: the tenant's quotas, the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from chairlift.errors import (
    EngineDrainingError,
    EngineError,
    EngineOverloadedError,
    InvalidParameterError,
    QuotaExceededError,
    StartTooLateError,
)
from chairlift.inputs import Account
from chairlift.server.engine_client import EngineClient
from chairlift.server.tenants import Tenant

_QUEUE_RETRY_S = 1.0

REASONS: Mapping[type[EngineError], str] = {
    QuotaExceededError: "quota",
    StartTooLateError: "start_too_late",
    EngineOverloadedError: "queue_full",
    EngineDrainingError: "draining",
}
"""Why the door refuses; the first that fits counts."""


class Door:
    """Lets requests in, or says when to come back; one per app, on its event loop.

    Quotas of the tenant act first, then the common queue; priorities play no part here.

    Args:
        clock: Monotonic seconds.

    Attributes:
        num_refused: Requests that were not let in, by reason (``REASONS``).
    """

    def __init__(
        self,
        engine: EngineClient,
        tenants: Iterable[Tenant],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._meters = {
            tenant.name: _TokenMeter(tenant.tokens_per_minute, clock)
            for tenant in self._tenants.values()
            if tenant.tokens_per_minute
        }
        self.num_refused = dict.fromkeys([*REASONS.values(), "engine"], 0)
        self._num_entering = 0
        self._num_entering_of = dict.fromkeys(self._tenants, 0)

    def account(self, tenant: str, priority: int | None) -> Account:
        """The account of a request with a tenant's key (empty: of none) and this priority.

        Raises:
            InvalidParameterError: The priority is out of bounds or above the tenant's ceiling.
        """
        if tenant in self._tenants:
            return self._tenants[tenant].account(priority)
        return Account(tenant, priority or 0)

    @contextmanager
    def enter(self, account: Account, num_choices: int) -> Iterator[None]:
        """Hold places in the queue while prompts are tokenised, until the engine has them.

        Raises:
            InvalidParameterError: So many choices never fit into the queue.
            QuotaExceededError: The tenant has no room left at the moment.
            EngineError: The engine takes nothing now, as ``EngineClient.check_admission``.
        """
        self._check_size(num_choices, self._engine.limits.max_num_waiting, "max_num_waiting")
        try:
            if account.tenant in self._tenants:
                self._check_quotas(self._tenants[account.tenant], num_choices)
            self._engine.check_admission(num_choices, num_entering=self._num_entering)
            self._count(account.tenant, num_choices)
            try:
                yield
            finally:
                self._count(account.tenant, -num_choices)
        except EngineError as error:
            self.num_refused[_reason(error)] += 1
            raise

    def _count(self, tenant: str, num_choices: int) -> None:
        self._num_entering += num_choices
        if tenant in self._num_entering_of:
            self._num_entering_of[tenant] += num_choices

    def _check_quotas(self, tenant: Tenant, num_choices: int) -> None:
        usage = self._engine.usage_of(tenant.name)
        if tenant.max_queued:
            self._check_size(num_choices, tenant.max_queued, "max_queued of the tenant")
            num_queued = usage.num_queued + self._num_entering_of[tenant.name]
            if num_queued + num_choices > tenant.max_queued:
                raise QuotaExceededError(
                    f"{num_queued} requests of tenant {tenant.name!r} wait for their first token, "
                    f"of at most {tenant.max_queued} (max_queued); try again later",
                    retry_after_s=_QUEUE_RETRY_S,
                )
        meter = self._meters.get(tenant.name)
        if meter is not None and (wait_s := meter.wait_s(usage.num_tokens)) > 0.0:
            raise QuotaExceededError(
                f"tenant {tenant.name!r} has used its {tenant.tokens_per_minute} tokens a minute "
                f"(tokens_per_minute); try again in {wait_s:.0f} s",
                retry_after_s=wait_s,
            )

    @staticmethod
    def _check_size(num_choices: int, most: int, name: str) -> None:
        if num_choices > most:
            raise InvalidParameterError(
                f"prompts times n is {num_choices}, but at most {most} may wait ({name}); send "
                "fewer at a time",
                param="prompt",
            )


def _reason(error: EngineError) -> str:
    return next((reason for cls, reason in REASONS.items() if isinstance(error, cls)), "engine")


class _TokenMeter:
    """A bucket that tokens flow into evenly and are taken from as they are used.

    Whoever comes while anything is left is let in, so it can be in debt afterwards: a request's
    output is not known before. Over any time the tokens used are at most those that flowed in, a
    full bucket, and what the requests let in last go on to use.
    """

    def __init__(self, tokens_per_minute: int, clock: Callable[[], float]) -> None:
        self._size = float(tokens_per_minute)
        self._per_second = tokens_per_minute / 60.0
        self._clock = clock
        self._level = self._size
        self._num_used = 0
        self._looked_s = clock()

    def wait_s(self, num_used: int) -> float:
        """Seconds until there is something left; ``num_used`` counts tokens since the start."""
        now_s = self._clock()
        self._level += (now_s - self._looked_s) * self._per_second
        self._level = min(self._level, self._size) - (num_used - self._num_used)
        self._looked_s, self._num_used = now_s, num_used
        return 0.0 if self._level >= 1.0 else (1.0 - self._level) / self._per_second
