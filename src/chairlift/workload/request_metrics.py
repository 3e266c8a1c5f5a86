"""The times of requests, defined once for benchmarks and simulation; ``docs/metrics.md`` has them.

Symbols, in seconds on one clock, for a request with n output tokens:

    a    arrival          when the request was sent
    s    scheduled        when it first got tokens in a step
    f    first token      when its first token was there
    l    last token       when its last token was there
    t_i  token i          t_1 = f, t_n = l
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Moments of finished requests, as columns of equal length.

    Attributes:
        arrival_s: a, float64.
        scheduled_s: s, float64; NaN where the observer cannot see it.
        first_token_s: f, float64.
        last_token_s: l, float64.
        num_output_tokens: n, int64, each at least 1.
    """

    arrival_s: NDArray[np.float64]
    scheduled_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    last_token_s: NDArray[np.float64]
    num_output_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_s)

    def where(self, chosen: NDArray[np.bool_]) -> RequestTimes:
        """Those of some requests. ``chosen``: [num_requests] bool."""
        return RequestTimes(
            self.arrival_s[chosen],
            self.scheduled_s[chosen],
            self.first_token_s[chosen],
            self.last_token_s[chosen],
            self.num_output_tokens[chosen],
        )

    @property
    def ttft_s(self) -> NDArray[np.float64]:
        """Time to first token: f - a."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """Time per output token: (l - f) / (n - 1). NaN for requests of one token."""
        num_gaps = (self.num_output_tokens - 1).astype(np.float64)
        num_gaps[num_gaps == 0] = np.nan
        return (self.last_token_s - self.first_token_s) / num_gaps

    @property
    def e2el_s(self) -> NDArray[np.float64]:
        """End-to-end latency: l - a."""
        return self.last_token_s - self.arrival_s

    @property
    def queue_s(self) -> NDArray[np.float64]:
        """Queue time: s - a. NaN where s is."""
        return self.scheduled_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Inter-token latencies of all requests pooled: t_i - t_(i-1), each gap once.

    Attributes:
        gap_s: Different or repeated gaps, in any order. float64.
        counts: How many tokens had each. int64.
    """

    gap_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Summary:
    """What is said about many values; all NaN when there is none.

    Attributes:
        percentiles: The smallest value that at least so many percent of the values do not exceed
            (nearest rank: always a value that occurred), by percent.
    """

    count: int
    mean: float
    maximum: float
    percentiles: dict[float, float]

    def percentile(self, percent: float) -> float:
        """One of :data:`PERCENTILES`, or another that was asked for.

        Raises:
            KeyError: It was not.
        """
        return self.percentiles[percent]


def summarise(
    values: NDArray[np.float64],
    counts: NDArray[np.int64] | None = None,
    percents: tuple[float, ...] = PERCENTILES,
) -> Summary:
    """Summarise values, NaNs left out.

    Args:
        values: [num_values] float64.
        counts: How often each occurred, int64; ``None``: once.
        percents: Percentiles wanted, each above 0 and at most 100.
    """
    weights = np.ones(len(values), np.int64) if counts is None else counts
    kept = ~np.isnan(values) & (weights > 0)
    values, weights = values[kept], weights[kept]
    if not len(values):
        return Summary(0, math.nan, math.nan, dict.fromkeys(percents, math.nan))
    order = np.argsort(values, kind="stable")
    values, cumulated = values[order], np.cumsum(weights[order])
    total = int(cumulated[-1])
    # Ceiling without rounding errors of percent / 100: 99 % of 100 values are 99 of them.
    ranks = [max(1, math.ceil(percent * total / 100 - 1e-9)) for percent in percents]
    places = np.searchsorted(cumulated, ranks)
    return Summary(
        total,
        float(np.dot(values, weights[order]) / total),
        float(values[-1]),
        dict(zip(percents, values[places].tolist(), strict=True)),
    )


METRICS = ("ttft", "tpot", "itl", "e2el", "queue")


def summarise_requests(
    times: RequestTimes, gaps: TokenGaps, percents: tuple[float, ...] = PERCENTILES
) -> dict[str, Summary]:
    """Summaries of all of :data:`METRICS`, by name, in seconds."""
    columns = {"ttft": times.ttft_s, "tpot": times.tpot_s, "e2el": times.e2el_s}
    summaries = {name: summarise(column, None, percents) for name, column in columns.items()}
    summaries["itl"] = summarise(gaps.gap_s, gaps.counts, percents)
    summaries["queue"] = summarise(times.queue_s, None, percents)
    return {name: summaries[name] for name in METRICS}
