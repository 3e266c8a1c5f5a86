"""What a simulation writes down: the moments of each request and the gaps between tokens."""

from __future__ import annotations

import math
from array import array
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from chairlift.workload.request_metrics import RequestTimes, TokenGaps
from chairlift.workload.workload import Workload


class Refusal(IntEnum):
    """Why a request was not served."""

    ENGINE = 1
    """It could never fit, found the waiting queue full, or would start or started too late."""
    QUOTA = 2
    """Its tenant had no room left."""


class RequestLog:
    """Moments of the requests of a workload, by their number in it; written by the replicas."""

    def __init__(self, num_requests: int) -> None:
        self._refused = array("b", [0]) * num_requests
        self._scheduled_s = array("d", [math.nan]) * num_requests
        self._first_token_s = array("d", [math.nan]) * num_requests
        self._last_token_s = array("d", [math.nan]) * num_requests
        self._gap_s = array("d")
        self._gap_counts = array("q")

    def finish(self, number: int, scheduled_s: float, first_s: float, last_s: float) -> None:
        """Note a request that has ended."""
        self._scheduled_s[number] = scheduled_s
        self._first_token_s[number] = first_s
        self._last_token_s[number] = last_s

    def refuse(self, number: int, reason: Refusal) -> None:
        """Note a request that was not served."""
        self._refused[number] = reason

    def refusals(self) -> NDArray[np.int8]:
        """A :class:`Refusal` for each request, 0 for those that were served. [num_requests]."""
        return np.array(self._refused, np.int8)

    def add_gap(self, gap_s: float, count: int) -> None:
        """Note that ``count`` tokens came ``gap_s`` after the one before them."""
        self._gap_s.append(gap_s)
        self._gap_counts.append(count)

    def add_gaps(self, gaps_s: list[float], count: int) -> None:
        """Note such gaps, each before ``count`` tokens."""
        self._gap_s.extend(gaps_s)
        self._gap_counts.extend([count] * len(gaps_s))

    def times(self, workload: Workload) -> RequestTimes:
        """Times of the requests that ended, in the order of the workload."""
        ended = self.has_ended()
        last_s = np.array(self._last_token_s)
        return RequestTimes(
            workload.arrival_s[ended],
            np.array(self._scheduled_s)[ended],
            np.array(self._first_token_s)[ended],
            last_s[ended],
            workload.num_output_tokens[ended],
        )

    def has_ended(self) -> NDArray[np.bool_]:
        """Which requests were served to their end. [num_requests] bool."""
        ended: NDArray[np.bool_] = ~np.isnan(np.array(self._last_token_s))
        return ended

    def gaps(self) -> TokenGaps:
        """All gaps between tokens."""
        return TokenGaps(np.array(self._gap_s), np.array(self._gap_counts, np.int64))
