"""Service-level objectives: what latencies a deployment must keep, and which requests kept them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chairlift.errors import ConfigError
from chairlift.workload.request_metrics import METRICS, RequestTimes, Summary

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_OBJECTIVE = re.compile(
    rf"(?P<metric>{'|'.join(METRICS)})(?:_(?:p(?P<percent>[\d.]+)|(?P<mean>mean)))?\s*<=?\s*"
    rf"(?P<limit>\d+\.?\d*|\.\d+)\s*(?P<unit>{'|'.join(_UNITS_S)})"
)


@dataclass(frozen=True, slots=True)
class Objective:
    """One bound on one latency.

    Attributes:
        metric: One of ``ttft``, ``tpot``, ``itl``, ``e2el``, ``queue``.
        percent: The percentile that must stay below, 0 for the mean; ``None``: each request counts
            for itself (goodput).
        limit_s: In seconds.
    """

    metric: str
    percent: float | None
    limit_s: float

    def __str__(self) -> str:
        part = {None: "", 0.0: "_mean"}.get(self.percent, f"_p{self.percent or 0:g}")
        limit = f"{self.limit_s:g}s" if self.limit_s >= 1 else f"{self.limit_s * 1e3:g}ms"
        return f"{self.metric}{part}<{limit}"

    def value_s(self, summaries: Mapping[str, Summary]) -> float:
        """The figure that is bounded, out of summaries that hold it.

        Raises:
            ConfigError: The objective is about single requests.
        """
        if self.percent is None:
            raise ConfigError(f"{self} says no percentile; write {self.metric}_p99<... instead")
        summary = summaries[self.metric]
        return summary.percentile(self.percent) if self.percent else summary.mean

    def is_met(self, summaries: Mapping[str, Summary]) -> bool:
        """Whether the figure is below the limit; one that nothing was measured for is met."""
        return not self.value_s(summaries) >= self.limit_s


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Read objectives as written on the command line.

    Args:
        text: Comma-separated, as in ``ttft_p99<1s,itl_p99<100ms``, ``tpot_mean<50ms``, or, for
            single requests, ``ttft<1s``.

    Raises:
        ConfigError: A part is no objective; the message shows one.
    """
    objectives = []
    for part in text.split(","):
        found = _OBJECTIVE.fullmatch(part.strip())
        if found is None:
            raise ConfigError(
                f"an objective is METRIC_pPERCENT<LIMIT as in ttft_p99<1s, with one of "
                f"{', '.join(METRICS)} and one of {', '.join(_UNITS_S)}, got {part.strip()!r}"
            )
        limit_s = float(found["limit"]) * _UNITS_S[found["unit"]]
        objectives.append(Objective(found["metric"], _percent(found), limit_s))
    return tuple(objectives)


def _percent(found: re.Match[str]) -> float | None:
    if found["mean"]:
        return 0.0
    if found["percent"] is None:
        return None
    try:
        percent = float(found["percent"])
    except ValueError:
        percent = 0.0
    if not 0.0 < percent <= 100.0:
        raise ConfigError(f"a percentile is above 0 and at most 100, got p{found['percent']}")
    return percent


def percents_of(objectives: tuple[Objective, ...]) -> tuple[float, ...]:
    """The percentiles that objectives speak of, ascending."""
    return tuple(sorted({o.percent for o in objectives if o.percent}))


def goodput_per_s(
    times: RequestTimes, objectives: tuple[Objective, ...], duration_s: float
) -> float:
    """Requests per second that kept every one of these limits.

    A request of one token has no time per output token and keeps any limit on it.

    Args:
        objectives: About single requests: ``ttft``, ``tpot``, ``e2el`` or ``queue``.

    Raises:
        ConfigError: One is about a percentile or about ``itl``, which requests do not have.
    """
    columns = {
        "ttft": times.ttft_s,
        "tpot": times.tpot_s,
        "e2el": times.e2el_s,
        "queue": times.queue_s,
    }
    good: NDArray[np.bool_] = np.ones(len(times), np.bool_)
    for objective in objectives:
        if objective.percent is not None or objective.metric not in columns:
            raise ConfigError(
                f"goodput counts requests: it takes {', '.join(columns)} without a percentile, "
                f"got {objective}"
            )
        good &= ~(columns[objective.metric] >= objective.limit_s)
    return float(np.count_nonzero(good)) / duration_s if duration_s > 0 else 0.0
