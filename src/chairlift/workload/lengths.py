"""How long prompts and outputs are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from chairlift.errors import ConfigError

Z_95 = 1.6448536269514722
"""95th percentile of the standard normal distribution."""

LENGTHS_HELP = (
    "N, uniform:LOW-HIGH, lognormal:MEDIAN,P95[,MAX], or mix:SHARE*LENGTHS+SHARE*LENGTHS..."
)


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw token counts. [num_requests] int64, each at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantLengths:
    """Every request has the same length."""

    num_tokens: int

    def __post_init__(self) -> None:
        _check_length("length", self.num_tokens, 1)

    def draw(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """As :class:`Lengths`."""
        return np.full(num_requests, self.num_tokens, np.int64)


@dataclass(frozen=True, slots=True)
class UniformLengths:
    """Every length from ``low`` to ``high``, both included, is as likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_length("the lower bound of uniform lengths", self.low, 1)
        _check_length("the upper bound of uniform lengths", self.high, self.low)

    def draw(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """As :class:`Lengths`."""
        return rng.integers(self.low, self.high, num_requests, np.int64, endpoint=True)


@dataclass(frozen=True, slots=True)
class LognormalLengths:
    """Many short and a few very long ones, as prompts and answers of people are.

    Attributes:
        median: In tokens.
        p95: One in twenty is longer. In tokens, above the median.
        max_tokens: Longer ones are cut to this; 0: none is. The mean of what is drawn is lower
            for it.
    """

    median: float
    p95: float
    max_tokens: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.median < self.p95 < math.inf:
            raise ConfigError(
                "lognormal lengths need 1 <= MEDIAN < P95, "
                f"got MEDIAN {self.median:g} and P95 {self.p95:g}"
            )
        if self.max_tokens:
            _check_length("the maximum of lognormal lengths", self.max_tokens, 1)

    def draw(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """As :class:`Lengths`."""
        sigma = math.log(self.p95 / self.median) / Z_95
        lengths = np.rint(self.median * np.exp(sigma * rng.standard_normal(num_requests)))
        return np.clip(lengths, 1, self.max_tokens or None).astype(np.int64)


@dataclass(frozen=True, slots=True)
class MixedLengths:
    """Requests of several kinds, each with lengths of its own.

    Attributes:
        shares: Share of each kind, above 0, together 1.
        kinds: The lengths of each.
    """

    shares: tuple[float, ...]
    kinds: tuple[Lengths, ...]

    def __post_init__(self) -> None:
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1.0) > 1e-6:
            raise ConfigError(
                f"shares of mixed lengths must be above 0 and add up to 1, got {self.shares}"
            )

    def draw(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """As :class:`Lengths`."""
        chosen = rng.choice(len(self.kinds), num_requests, p=self.shares)
        drawn = np.stack([kind.draw(num_requests, rng) for kind in self.kinds])
        lengths: NDArray[np.int64] = drawn[chosen, np.arange(num_requests)]
        return lengths


def parse_lengths(text: str) -> Lengths:
    """Read a distribution as written on the command line.

    Args:
        text: ``128``, ``uniform:16-256``, ``lognormal:100,400`` (median and 95th percentile) or
            ``lognormal:100,400,2048`` (and the longest), or several of these with their shares:
            ``mix:0.9*lognormal:10,40+0.1*uniform:200-400``.

    Raises:
        ConfigError: It is none of these, or its numbers cannot be.
    """
    if text.startswith("mix:"):
        return _parse_mix(text)
    kind, _, numbers = text.partition(":") if ":" in text else ("constant", "", text)
    try:
        if kind == "constant":
            return ConstantLengths(int(numbers))
        if kind == "uniform":
            low, high = map(int, numbers.split("-"))
            return UniformLengths(low, high)
        if kind == "lognormal":
            median, p95, *longest = numbers.split(",")
            return LognormalLengths(float(median), float(p95), *map(int, longest))
    except ConfigError:
        raise
    except (ValueError, TypeError):
        pass
    raise ConfigError(f"lengths must be {LENGTHS_HELP}, got {text!r}")


def _parse_mix(text: str) -> MixedLengths:
    shares, kinds = [], []
    for part in text.removeprefix("mix:").split("+"):
        share, _, lengths = part.partition("*")
        try:
            shares.append(float(share))
        except ValueError:
            raise ConfigError(f"lengths must be {LENGTHS_HELP}, got {text!r}") from None
        kinds.append(parse_lengths(lengths))
    return MixedLengths(tuple(shares), tuple(kinds))


def _check_length(name: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{name} must be at least {low} tokens, got {value}")
