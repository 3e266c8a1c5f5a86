"""What a scheduling policy decides; everything else is the scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from chairlift.core.request import Request


class Outlook(NamedTuple):
    """Where newcomers would stand among those that are there, in numbers.

    Attributes:
        rank_of: Of a request that waits or runs. It stays before newcomers of this rank or a
            higher one; newcomers of a lower rank go before it and, if it runs, take its place.
        ranks: Of newcomers, by tenant; ``None``: a newcomer's rank is its priority.
        other_rank: Of newcomers of tenants that are not in ``ranks``.
    """

    rank_of: Callable[[Request], float]
    ranks: Mapping[str, float] | None = None
    other_rank: float = 0.0


class SchedulingPolicy(Protocol):
    """Keeps the requests that do not run, and says who is next and who gives way.

    The scheduler calls it from one thread. It may keep what it likes about requests between
    :meth:`arrived` and :meth:`left`, but must not change them. Everything that a policy decides
    must follow from these calls and their ``now_s``: no clock, no randomness.

    A class of your own can be named on the command line as ``module:Class``; it is made with the
    ``SchedulerConfig`` as its only argument.
    """

    @property
    def reorders(self) -> bool:
        """Whether the order of running requests changes while they run."""
        ...

    def __len__(self) -> int:
        """Requests in the line."""
        ...

    def arrived(self, request: Request) -> None:
        """A new request is there. :meth:`add` follows."""
        ...

    def add(self, request: Request) -> None:
        """Put a request into the line: a new one, or one that lost its blocks.

        One that was preempted must come before those of equal standing that never ran.
        """
        ...

    def remove(self, request: Request) -> None:
        """Take a request out of the line, because it starts, returns or is cancelled.

        Raises:
            KeyError: It is not in the line.
        """
        ...

    def next(
        self, now_s: float, passed: Collection[Request], full_tenants: Collection[str]
    ) -> Request | None:
        """Whose turn it is, leaving out those passed over in this step and the full tenants."""
        ...

    def order_running(self, running: list[Request]) -> None:
        """Sort the running requests in place: budget goes to the first, blocks from the last."""
        ...

    def gives_way(self, waiting: Request, running: Request) -> bool:
        """Whether ``running`` must free its slot or blocks for ``waiting``.

        Must be a strict order: if a gives way to b, b never gives way to a, now or later.
        """
        ...

    def served(self, request: Request, num_prefill_tokens: int, num_decode_tokens: int) -> None:
        """A step gave a request so many tokens of its prompt and so many of its output."""
        ...

    def outlook(self, now_s: float, mean_output_tokens: float) -> Outlook | None:
        """Where newcomers would stand, for the forecast of their start (``target_ttft``).

        Args:
            mean_output_tokens: How long answers have been; infinite if none has ended yet.

        Returns:
            ``None`` if they are to be judged as at the end of the line.
        """
        ...

    def left(self, request: Request) -> None:
        """A request has ended."""
        ...
