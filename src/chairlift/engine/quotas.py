"""What tenants may still ask for: places in their queues and tokens a minute.

Used at the server's door and, on a virtual clock, by the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chairlift.engine.tenant_usage import TenantUsage
from chairlift.engine.tenants import Tenant
from chairlift.errors import InvalidParameterError, QuotaExceededError

_QUEUE_RETRY_S = 1.0


class TenantQuotas:
    """Refuses requests of tenants that have used up what they may.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, tenants: Iterable[Tenant], clock: Callable[[], float]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._meters = {
            tenant.name: _TokenMeter(tenant.tokens_per_minute, clock)
            for tenant in self._tenants.values()
            if tenant.tokens_per_minute
        }

    def check(self, name: str, usage: TenantUsage, num_choices: int = 1) -> None:
        """Refuse choices of a tenant for which it has no room.

        Args:
            name: Of the tenant, which is one of those given.
            usage: What it uses now.

        Raises:
            InvalidParameterError: So many choices never fit into its queue.
            QuotaExceededError: It has no room left at the moment.
        """
        tenant = self._tenants[name]
        if tenant.max_queued:
            check_size(num_choices, tenant.max_queued, "max_queued of the tenant")
            if usage.num_queued + num_choices > tenant.max_queued:
                raise QuotaExceededError(
                    f"{usage.num_queued} requests of tenant {name!r} wait for their first token, "
                    f"of at most {tenant.max_queued} (max_queued); try again later",
                    retry_after_s=_QUEUE_RETRY_S,
                )
        meter = self._meters.get(name)
        if meter is not None and (wait_s := meter.wait_s(usage.num_tokens)) > 0.0:
            raise QuotaExceededError(
                f"tenant {name!r} has used its {tenant.tokens_per_minute} tokens a minute "
                f"(tokens_per_minute); try again in {wait_s:.0f} s",
                retry_after_s=wait_s,
            )


def check_size(num_choices: int, most: int, name: str) -> None:
    """Refuse more choices at once than a queue, which has a ``name``, ever holds.

    Raises:
        InvalidParameterError: They are more.
    """
    if num_choices > most:
        raise InvalidParameterError(
            f"prompts times n is {num_choices}, but at most {most} may wait ({name}); send "
            "fewer at a time",
            param="prompt",
        )


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
