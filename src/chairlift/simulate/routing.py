"""Which of several replicas gets a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, get_args

from chairlift.errors import ConfigError

RoutingPolicy = Literal["round-robin", "least-loaded", "prefix-aware"]

OVERLOAD_FACTOR = 1.25
"""A replica with more than this times the mean load is passed over, however good its cache."""

Loads = Callable[[], Sequence[int]]


class Router(Protocol):
    """Chooses a replica for each request, in order of arrival."""

    def choose(self, prefix_group: int | None, loads: Loads) -> int:
        """The replica's number.

        Args:
            prefix_group: Which common prompt start the request has, if any.
            loads: Gives the requests that each replica has at this moment. Not called by policies
                that do not look.
        """
        ...


class RoundRobin:
    """One after the other, whatever they have to do."""

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._next = 0

    def choose(self, prefix_group: int | None, loads: Loads) -> int:
        """As :class:`Router`."""
        chosen = self._next
        self._next = (chosen + 1) % self._num_replicas
        return chosen


class LeastLoaded:
    """Whoever has the fewest requests, waiting ones included; the lowest number among equals."""

    def choose(self, prefix_group: int | None, loads: Loads) -> int:
        """As :class:`Router`."""
        current = loads()
        return min(range(len(current)), key=current.__getitem__)


class PrefixAware:
    """The replica that saw the prefix before, unless it has much more to do than the others.

    Then the least loaded one, which has seen the prefix from then on. (Consistent hashing with
    bounded loads, Mirrokni et al. 2018, with a memory in the place of the hash.)
    """

    def __init__(self) -> None:
        self._home: dict[int, int] = {}
        self._least_loaded = LeastLoaded()

    def choose(self, prefix_group: int | None, loads: Loads) -> int:
        """As :class:`Router`."""
        current = loads()
        home = None if prefix_group is None else self._home.get(prefix_group)
        most = OVERLOAD_FACTOR * (sum(current) + 1) / len(current)
        if home is not None and current[home] + 1 <= max(1.0, most):
            return home
        chosen = self._least_loaded.choose(prefix_group, lambda: current)
        if prefix_group is not None:
            self._home[prefix_group] = chosen
        return chosen


def make_router(policy: RoutingPolicy, num_replicas: int) -> Router:
    """The router of that name.

    Raises:
        ConfigError: There is none.
    """
    if policy not in get_args(RoutingPolicy):
        names = ", ".join(get_args(RoutingPolicy))
        raise ConfigError(f"routing must be one of {names}, got {policy!r}")
    if policy == "round-robin":
        return RoundRobin(num_replicas)
    return LeastLoaded() if policy == "least-loaded" else PrefixAware()
