"""The requests that do not run, per tenant and in order of a fixed key."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable
from operator import itemgetter

from chairlift.core.request import Request

Key = tuple[float, int]
"""Order of a request among those of its tenant: the policy's urgency, then arrival."""

_Entry = tuple[Key, Request]
_KEY = itemgetter(0)


class WaitingLine:
    """One sorted line per tenant.

    The key of a request must not change while it is in the line. Adding and removing move a few
    machine words per waiting request of the tenant; looking at the first ones costs nothing more
    however many wait.

    Args:
        key: Order of a request; no two requests have the same.
    """

    def __init__(self, key: Callable[[Request], Key]) -> None:
        self._key = key
        self._lines: dict[str, list[_Entry]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def tenants(self) -> Iterable[str]:
        """Tenants with somebody in the line."""
        return self._lines.keys()

    def add(self, request: Request) -> None:
        """Put a request where its key says."""
        line = self._lines.setdefault(request.tenant, [])
        insort(line, (self._key(request), request), key=_KEY)
        self._size += 1

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it is.

        Raises:
            KeyError: It is not in the line.
        """
        line = self._lines.get(request.tenant, [])
        index = bisect_left(line, self._key(request), key=_KEY)
        if index == len(line) or line[index][1] is not request:
            raise KeyError(request.request_id)
        del line[index]
        self._size -= 1
        if not line:
            del self._lines[request.tenant]

    def first_of(self, tenant: str, passed: Collection[Request]) -> tuple[Key, Request] | None:
        """The first request of a tenant that is not among those already passed over."""
        for entry in self._lines.get(tenant, ()):
            if entry[1] not in passed:
                return entry
        return None

    def requests_of(self, tenant: str) -> list[Request]:
        """All requests of a tenant that wait, in order."""
        return [request for _, request in self._lines.get(tenant, ())]

    def first(self, passed: Collection[Request], full_tenants: Collection[str]) -> Request | None:
        """The first request of all tenants but the full ones."""
        best: tuple[Key, Request] | None = None
        for tenant in self._lines:
            if tenant not in full_tenants:
                entry = self.first_of(tenant, passed)
                if entry is not None and (best is None or entry[0] < best[0]):
                    best = entry
        return None if best is None else best[1]

    def head(self, count: int) -> list[Request]:
        """The first ``count`` requests of each tenant, in no order across tenants."""
        return [entry[1] for line in self._lines.values() for entry in line[:count]]
