"""Equal service for tenants that compete, whatever they send.

Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI '24 (Virtual Token Counter).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import Outlook
from chairlift.core.policies.waiting_line import Key, WaitingLine
from chairlift.core.request import Request

PREFILL_COST = 1.0
DECODE_COST = 2.0
"""Costs of a prompt and of an output token, those of the paper's evaluation."""


class FairPolicy:
    """The tenant that was served least, by weight, is next.

    Each tenant has a counter of the service it got: prompt tokens and output tokens by cost,
    divided by its weight. A tenant that comes back after having had nothing to do is lifted to the
    lowest counter of the others, so idling earns no credit. Between two tenants that both have
    requests waiting, the counters differ by at most what one request can be charged before the
    next choice: the paper's bound (theorem 4.3) is twice ``max(PREFILL_COST * longest prompt,
    DECODE_COST * tokens in the running batch)``.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._line = WaitingLine(lambda request: (0.0, request.arrival_index))
        self._weights = {tenant.name: tenant.weight for tenant in config.tenants}
        self._counters: dict[str, float] = {}
        self._num_live: dict[str, int] = {}
        self._last_to_leave = ""

    reorders = True

    def __len__(self) -> int:
        return len(self._line)

    def service(self, tenant: str) -> float:
        """Weighted service that a tenant has had, in cost units."""
        return self._counters.get(tenant, 0.0)

    def arrived(self, request: Request) -> None:
        """Lift a tenant that had nothing to do to the least served of those that have."""
        tenant = request.tenant
        if not self._num_live.get(tenant):
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), self._floor())
        self._num_live[tenant] = self._num_live.get(tenant, 0) + 1

    def add(self, request: Request) -> None:
        """By arrival among the tenant's own."""
        self._line.add(request)

    def remove(self, request: Request) -> None:
        """From wherever it is."""
        self._line.remove(request)

    def next(
        self, now_s: float, passed: Collection[Request], full_tenants: Collection[str]
    ) -> Request | None:
        """The earliest request of the tenant served least."""
        best: tuple[float, Key, Request] | None = None
        for tenant in self._line.tenants:
            entry = None if tenant in full_tenants else self._line.first_of(tenant, passed)
            if entry is not None:
                candidate = (self._counters[tenant], *entry)
                if best is None or candidate[:2] < best[:2]:
                    best = candidate
        return None if best is None else best[2]

    def order_running(self, running: list[Request]) -> None:
        """Least served tenant first, so that the most over-served gives way."""
        running.sort(key=lambda r: (self._counters[r.tenant], r.arrival_index))

    def gives_way(self, waiting: Request, running: Request) -> bool:
        """Never: service is evened out by who starts next."""
        return False

    def served(self, request: Request, num_prefill_tokens: int, num_decode_tokens: int) -> None:
        """Charge the tenant."""
        cost = PREFILL_COST * num_prefill_tokens + DECODE_COST * num_decode_tokens
        self._counters[request.tenant] += cost / self._weights.get(request.tenant, 1.0)

    def outlook(self, now_s: float, mean_output_tokens: float) -> Outlook | None:
        """By the counters that tenants will have when the turn of each request comes.

        Each of a tenant's requests has to wait until those of the same tenant before it have been
        charged, for answers of the usual length. Those that run stay.
        """
        turns: dict[str, float] = {}
        ranks: dict[str, float] = {}
        floor = self._floor()
        for tenant, counter in self._counters.items():
            rank = counter if self._num_live.get(tenant) else max(counter, floor)
            for request in self._line.requests_of(tenant):
                turns[request.request_id] = rank
                rank += self._cost_ahead(request, mean_output_tokens)
            ranks[tenant] = rank
        return Outlook(lambda request: turns.get(request.request_id, -math.inf), ranks, floor)

    def _cost_ahead(self, request: Request, mean_output_tokens: float) -> float:
        """What its tenant will be charged for a request that waits."""
        num_outputs = min(request.max_num_tokens - request.num_tokens, mean_output_tokens)
        num_prompt = request.num_prompt_tokens if request.num_preemptions == 0 else 0
        cost = PREFILL_COST * num_prompt + DECODE_COST * num_outputs
        return cost / self._weights.get(request.tenant, 1.0)

    def _floor(self) -> float:
        """What the counter of a tenant is lifted to that comes back."""
        busy = [self._counters[tenant] for tenant, num_live in self._num_live.items() if num_live]
        return min(busy) if busy else self._counters.get(self._last_to_leave, 0.0)

    def left(self, request: Request) -> None:
        """One request fewer; counters are kept for a tenant's return."""
        self._num_live[request.tenant] -= 1
        if not self._num_live[request.tenant]:
            self._last_to_leave = request.tenant
