"""What a request has to pass before anything is done for it: the tenant's quotas, the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from chairlift.engine.quotas import TenantQuotas, check_size
from chairlift.engine.tenants import Tenant
from chairlift.errors import (
    EngineDrainingError,
    EngineError,
    EngineOverloadedError,
    QuotaExceededError,
    StartTooLateError,
)
from chairlift.inputs import Account
from chairlift.server.engine_client import EngineClient

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
        self._quotas = TenantQuotas(self._tenants.values(), clock)
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
        check_size(num_choices, self._engine.limits.max_num_waiting, "max_num_waiting")
        try:
            if account.tenant in self._tenants:
                self._check_quotas(account.tenant, num_choices)
            self._engine.check_admission(
                num_choices, account=account, num_entering=self._num_entering
            )
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

    def _check_quotas(self, tenant: str, num_choices: int) -> None:
        usage = self._engine.usage_of(tenant)
        num_queued = usage.num_queued + self._num_entering_of[tenant]
        self._quotas.check(tenant, replace(usage, num_queued=num_queued), num_choices)


def _reason(error: EngineError) -> str:
    return next((reason for cls, reason in REASONS.items() if isinstance(error, cls)), "engine")
