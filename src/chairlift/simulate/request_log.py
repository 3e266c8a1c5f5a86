"""What a simulation writes down: the moments of each request and the gaps between tokens."""

from __future__ import annotations

import math
from array import array

import numpy as np

from chairlift.workload.request_metrics import RequestTimes, TokenGaps
from chairlift.workload.workload import Workload


class RequestLog:
    """Moments of the requests of a workload, by their number in it; written by the replicas.

    Attributes:
        num_refused: Requests that could never fit, or found the waiting queue full.
    """

    def __init__(self, num_requests: int) -> None:
        self.num_refused = 0
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
        last_s = np.array(self._last_token_s)
        ended = ~np.isnan(last_s)
        return RequestTimes(
            workload.arrival_s[ended],
            np.array(self._scheduled_s)[ended],
            np.array(self._first_token_s)[ended],
            last_s[ended],
            workload.num_output_tokens[ended],
        )

    def gaps(self) -> TokenGaps:
        """All gaps between tokens."""
        return TokenGaps(np.array(self._gap_s), np.array(self._gap_counts, np.int64))
