"""How long newcomers would wait for a start, by where the policy would put them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple


class StartDelay(NamedTuple):
    """How long a request that arrived now would wait for its first tokens in a step.

    Attributes:
        start_s: With those before it that there are, in seconds.
        each_s: What one more request before it would add, in seconds.
    """

    start_s: float = 0.0
    each_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StartDelays:
    """The delays of all newcomers at one moment; all 0 without a target.

    Attributes:
        at_end: Of one that goes to the end of the line.
        by_rank: Delays of newcomers of a rank and above, up to the next rank; ascending, from
            minus infinity. Empty: all go to the end.
        ranks: Ranks of newcomers by tenant; ``None``: their rank is their priority.
        other_rank: Of newcomers of other tenants.
    """

    at_end: StartDelay
    by_rank: tuple[tuple[float, StartDelay], ...] = ()
    ranks: Mapping[str, float] | None = None
    other_rank: float = 0.0

    def of(self, tenant: str, priority: int) -> StartDelay:
        """The delay of a newcomer."""
        if not self.by_rank:
            return self.at_end
        rank = priority if self.ranks is None else self.ranks.get(tenant, self.other_rank)
        return self.by_rank[bisect_right(self.by_rank, rank, key=itemgetter(0)) - 1][1]


NO_DELAYS = StartDelays(StartDelay())
"""Everybody starts at once, or nothing is foretold."""
