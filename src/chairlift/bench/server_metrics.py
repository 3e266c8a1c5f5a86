"""What a server says of a run in ``/metrics``: queue time, preemptions, prefix cache."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.bench.http_client import HttpError, read_body
from chairlift.bench.target import Target

_NAMES = (
    "request_queue_time_seconds_sum",
    "request_queue_time_seconds_count",
    "num_preemptions_total",
)
_CACHE_NAMES = ("prefix_cache_queries_total", "prefix_cache_hits_total")


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """Counters of a server at one moment.

    Attributes:
        num_looked_up: Prompt tokens looked up in the prefix cache; 0 if the server does not say.
        num_cached: Of those, found.
    """

    queue_s: float
    num_queued: float
    num_preemptions: float
    num_looked_up: float = 0.0
    num_cached: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What a server did between two moments.

    Attributes:
        mean_queue_s: Of the requests that started; ``None`` if none did.
        cached_share: Of the prompt tokens looked up in the prefix cache, those that were found.
    """

    mean_queue_s: float | None
    num_preemptions: int
    cached_share: float = 0.0


async def read_counters(target: Target) -> ServerCounters | None:
    """Read the counters under vLLM's names, which Chairlift has too; ``None`` if there are none."""
    try:
        page = await read_body(target.address, "/metrics", target.headers)
    except HttpError:
        return None
    return parse_counters(page.decode("utf-8", "replace"))


def parse_counters(page: str) -> ServerCounters | None:
    """Find the counters in a page of Prometheus' text format, summed over labels."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0].removeprefix("vllm:")
        if name in _NAMES or name in _CACHE_NAMES:
            sums[name] = sums.get(name, 0.0) + float(value)
    if any(name not in sums for name in _NAMES):
        return None
    return ServerCounters(*(sums.get(name, 0.0) for name in (*_NAMES, *_CACHE_NAMES)))


def between(before: ServerCounters | None, after: ServerCounters | None) -> ServerSide | None:
    """What happened between two moments; ``None`` if the server does not say."""
    if before is None or after is None:
        return None
    num_started = after.num_queued - before.num_queued
    queue_s = (after.queue_s - before.queue_s) / num_started if num_started else None
    num_looked_up = after.num_looked_up - before.num_looked_up
    cached_share = (after.num_cached - before.num_cached) / num_looked_up if num_looked_up else 0.0
    return ServerSide(queue_s, int(after.num_preemptions - before.num_preemptions), cached_share)
