"""How many requests of each tenant may run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from chairlift.config import TenantConfig
from chairlift.core.request import Request


class TenantLimits:
    """Counts running requests against the limits of their tenants."""

    def __init__(self, tenants: Iterable[TenantConfig]) -> None:
        self._most_of = {t.name: t.max_running for t in tenants if t.max_running}

    def most(self, tenant: str) -> int | None:
        """How many requests of a tenant may run; ``None``: as many as there are slots."""
        return self._most_of.get(tenant)

    def full(self, running: Iterable[Request]) -> Collection[str]:
        """Tenants that have as many requests running as they may."""
        if not self._most_of:
            return ()
        num_running = Counter(request.tenant for request in running)
        return {name for name, most in self._most_of.items() if num_running[name] >= most}
