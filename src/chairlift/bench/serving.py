"""Load on a server at given moments, and what its clients see of it.

An open loop: requests are sent when the workload says, whether or not earlier ones are done, as
independent users would. Failed requests are counted and left out of the latencies.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chairlift.bench.server_metrics import ServerSide, between, read_counters
from chairlift.bench.target import Measured, Prompts, Target, complete, request_body
from chairlift.workload.request_metrics import (
    PERCENTILES,
    RequestTimes,
    Summary,
    TokenGaps,
    summarise_requests,
)
from chairlift.workload.workload import Workload

CACHED_SHARE_TO_WARN = 0.01


@dataclass(frozen=True, slots=True)
class ServingResult:
    """What a run gave.

    Attributes:
        errors: How many requests failed, by what they failed with.
        num_prompt_tokens: Of finished requests, as the server counts them.
        num_cached_tokens: Of those, from the server's prefix cache.
        duration_s: From the first request sent to the last token of any.
        server: What the server says about the run; ``None`` if it does not.
    """

    times: RequestTimes
    gaps: TokenGaps
    errors: dict[str, int]
    num_prompt_tokens: int
    num_cached_tokens: int
    duration_s: float
    server: ServerSide | None

    @property
    def num_failed(self) -> int:
        """Requests without a whole answer."""
        return sum(self.errors.values())

    @property
    def request_throughput_per_s(self) -> float:
        """Finished requests per second."""
        return len(self.times) / self.duration_s if self.duration_s else 0.0

    @property
    def output_throughput_per_s(self) -> float:
        """Output tokens of finished requests per second."""
        num_tokens = float(self.times.num_output_tokens.sum())
        return num_tokens / self.duration_s if self.duration_s else 0.0

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that the server had in its prefix cache.

        By the usage in its answers or by its ``/metrics``, whichever says more: many servers leave
        cached tokens out of the usage.
        """
        by_metrics = self.server.cached_share if self.server else 0.0
        if not self.num_prompt_tokens:
            return by_metrics
        return max(self.num_cached_tokens / self.num_prompt_tokens, by_metrics)

    def summaries(self, percents: tuple[float, ...] = PERCENTILES) -> dict[str, Summary]:
        """Latencies in seconds, by metric, as the clients saw them."""
        return summarise_requests(self.times, self.gaps, percents)


async def run_load(
    target: Target,
    workload: Workload,
    prompts: Prompts,
    *,
    max_concurrency: int = 0,
    on_done: Callable[[], None] = lambda: None,
) -> ServingResult:
    """Send a workload to a server and wait until every request has ended.

    Args:
        max_concurrency: Requests in flight at most; others wait at the client, and their latency
            counts from when they should have been sent. 0: no bound.
        on_done: Called as each request ends.
    """
    before = await read_counters(target)
    slots = asyncio.Semaphore(max_concurrency or len(workload))
    rows = list(workload.rows())
    bodies = [request_body(target, prompts.draw(i, row[1]), row[2]) for i, row in enumerate(rows)]
    start_s = time.monotonic()

    async def send(arrival_s: float, body: bytes) -> Measured:
        await asyncio.sleep(start_s + arrival_s - time.monotonic())
        due_s = time.monotonic()
        async with slots:
            measured = await complete(target, body)
        if max_concurrency:
            measured.sent_s = due_s
        on_done()
        return measured

    tasks = [send(row[0], body) for row, body in zip(rows, bodies, strict=True)]
    measured = await asyncio.gather(*tasks)
    return result_of(measured, between(before, await read_counters(target)))


def result_of(measured: Sequence[Measured], server: ServerSide | None) -> ServingResult:
    """Put the measurements of all requests together."""
    good = [m for m in measured if m.error is None]
    gap_s: list[float] = []
    for m in good:
        gaps = np.diff(m.piece_s).tolist()
        # Tokens that came in one piece with others had no gap between them.
        num_together = max(0, m.num_output_tokens - 1 - len(gaps))
        gap_s += gaps + [0.0] * num_together
    first_sent_s = min((m.sent_s for m in measured), default=0.0)
    last_s = max((m.piece_s[-1] for m in good), default=first_sent_s)
    return ServingResult(
        times=RequestTimes(
            np.array([m.sent_s for m in good]),
            np.full(len(good), np.nan),
            np.array([m.piece_s[0] for m in good]),
            np.array([m.piece_s[-1] for m in good]),
            np.array([m.num_output_tokens for m in good], np.int64),
        ),
        gaps=TokenGaps(np.array(gap_s), np.ones(len(gap_s), np.int64)),
        errors=dict(Counter(m.error for m in measured if m.error is not None)),
        num_prompt_tokens=sum(m.num_prompt_tokens for m in good),
        num_cached_tokens=sum(m.num_cached_tokens for m in good),
        duration_s=last_s - first_sent_s,
        server=server,
    )
