"""What each tenant uses of a simulated engine, and whether its quotas let in more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from chairlift.engine.quotas import TenantQuotas
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.engine.tenants import Tenant
from chairlift.errors import QuotaExceededError
from chairlift.inputs import CoreRequest
from chairlift.outputs import StepOutput


class TenantBooks:
    """Counts as the server's front does and asks the server's own quotas, in virtual time.

    Tenants without quotas are not counted.
    """

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        limited = [t for t in tenants if t.max_queued or t.tokens_per_minute]
        self._usage = {tenant.name: TenantUsage() for tenant in limited}
        self._tenant_of: dict[str, str] = {}
        self._without_token: set[str] = set()
        self._now_s = 0.0
        self._quotas = TenantQuotas(limited, lambda: self._now_s)

    @property
    def is_empty(self) -> bool:
        """No tenant has a quota."""
        return not self._usage

    def is_refused(self, request: CoreRequest) -> bool:
        """Whether the request finds no room at the moment of its arrival."""
        self._now_s = request.arrival_time_s
        if request.tenant not in self._usage:
            return False
        try:
            self._quotas.check(request.tenant, self._usage[request.tenant])
        except QuotaExceededError:
            return True
        return False

    def accepted(self, request: CoreRequest) -> None:
        """A request was let in."""
        if request.tenant in self._usage:
            self._tenant_of[request.request_id] = request.tenant
            self._without_token.add(request.request_id)
            self._add(request.tenant, 1, len(request.prompt_token_ids))

    def came(self, outputs: Iterable[StepOutput]) -> None:
        """A step gave requests tokens, or ended them."""
        if not self._tenant_of:
            return
        for output in outputs:
            tenant = self._tenant_of.get(output.request_id)
            if tenant is None:
                continue
            if output.request_id in self._without_token:
                self._without_token.remove(output.request_id)
                self._add(tenant, -1, 0)
            self._add(tenant, 0, len(output.token_ids))
            if output.finish_reason is not None:
                del self._tenant_of[output.request_id]

    def _add(self, tenant: str, num_queued: int, num_tokens: int) -> None:
        usage = self._usage[tenant]
        self._usage[tenant] = replace(
            usage,
            num_queued=usage.num_queued + num_queued,
            num_tokens=usage.num_tokens + num_tokens,
        )
