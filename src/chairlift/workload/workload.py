"""The work itself: who arrives when, with how many tokens in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chairlift.errors import ConfigError
from chairlift.inputs import Account
from chairlift.workload.arrivals import ArrivalProcess
from chairlift.workload.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, as columns.

    Attributes:
        arrival_s: [num_requests] float64, ascending, in seconds from the start.
        num_prompt_tokens: [num_requests] int64, each at least 1.
        num_output_tokens: [num_requests] int64, each at least 1.
        prefix_group: Which of several common prompt starts each request has. [num_requests] int64;
            ``None``: no two prompts have anything in common.
        num_prefix_tokens: Length of each common start; a shorter prompt is a piece of it.
        account: For which of ``accounts`` each request runs. [num_requests] int64; ``None``: all
            are nobody's.
        accounts: Those who send requests.
    """

    arrival_s: NDArray[np.float64]
    num_prompt_tokens: NDArray[np.int64]
    num_output_tokens: NDArray[np.int64]
    prefix_group: NDArray[np.int64] | None = None
    num_prefix_tokens: int = 0
    account: NDArray[np.int64] | None = None
    accounts: tuple[Account, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival_s)

    def rows(self) -> Iterator[tuple[float, int, int]]:
        """Arrival in seconds, prompt tokens and output tokens of each request, in order."""
        columns = (self.arrival_s, self.num_prompt_tokens, self.num_output_tokens)
        return zip(*(column.tolist() for column in columns), strict=True)

    def with_prefixes(self, num_groups: int, num_tokens: int, rng: np.random.Generator) -> Workload:
        """The same requests, each starting with one of ``num_groups`` common prefixes.

        Args:
            num_tokens: Length of each prefix. Prompts keep their length: they begin with it.

        Raises:
            ConfigError: A number is below 1.
        """
        if num_groups < 1 or num_tokens < 1:
            raise ConfigError(
                f"common prefixes need at least 1 group of 1 token, got {num_groups} of "
                f"{num_tokens}"
            )
        groups = rng.integers(0, num_groups, len(self), np.int64)
        return replace(self, prefix_group=groups, num_prefix_tokens=num_tokens)

    def with_accounts(self, shares: Mapping[Account, float], rng: np.random.Generator) -> Workload:
        """The same requests, each sent by one of several accounts at random.

        Args:
            shares: How often each is drawn relative to the others, above 0.
        """
        parts = np.array(list(shares.values()))
        drawn = rng.choice(len(parts), len(self), p=parts / parts.sum())
        return replace(self, account=drawn, accounts=tuple(shares))

    def at_rate(self, arrivals: ArrivalProcess, rng: np.random.Generator) -> Workload:
        """The same requests in the same order, arriving otherwise."""
        return replace(self, arrival_s=arrivals.times_s(len(self), rng))


def make_workload(
    num_requests: int,
    arrivals: ArrivalProcess,
    prompt_lengths: Lengths,
    output_lengths: Lengths,
    seed: int = 0,
) -> Workload:
    """Draw a workload. The same seed gives the same one; lengths do not depend on the arrivals.

    Raises:
        ConfigError: ``num_requests`` is below 1 or ``seed`` below 0.
    """
    if num_requests < 1:
        raise ConfigError(f"num_requests must be at least 1, got {num_requests}")
    if seed < 0:
        raise ConfigError(f"seed must be at least 0, got {seed}")
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)]
    return Workload(
        arrivals.times_s(num_requests, streams[0]),
        prompt_lengths.draw(num_requests, streams[1]),
        output_lengths.draw(num_requests, streams[2]),
    )
