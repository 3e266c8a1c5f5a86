"""Static, dynamic and continuous batching on the same engine, model and arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chairlift.config import BatchingMode
from chairlift.workload.chart import Chart, Series
from chairlift.workload.report import text_table
from chairlift.workload.request_metrics import RequestTimes, Summary, TokenGaps, summarise_requests
from chairlift.workload.workload import Workload

MODES: tuple[BatchingMode, ...] = ("static", "dynamic", "continuous")


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One mode under one load.

    Attributes:
        rate_per_s: Requests per second that were offered.
    """

    mode: BatchingMode
    rate_per_s: float
    requests_per_s: float
    output_tokens_per_s: float
    num_preemptions: int
    summaries: dict[str, Summary]


RunLoad = Callable[[BatchingMode, Workload], tuple[RequestTimes, float, int]]
"""Runs a workload under a mode; gives times, duration in seconds, and preemptions."""


def compare(
    rates: Sequence[float],
    make_workload: Callable[[float], Workload],
    run: RunLoad,
    modes: Sequence[BatchingMode] = MODES,
    on_point: Callable[[LoadPoint], None] = lambda point: None,
) -> list[LoadPoint]:
    """Run every mode at every rate, the modes in turn, so that drift of the machine hits all.

    Args:
        make_workload: The same requests for every rate, but for the times of their arrival.
        on_point: Told of each result as it is there.
    """
    points = []
    for rate in rates:
        workload = make_workload(rate)
        for mode in modes:
            times, duration_s, num_preemptions = run(mode, workload)
            point = LoadPoint(
                mode,
                rate,
                len(times) / duration_s,
                float(times.num_output_tokens.sum()) / duration_s,
                num_preemptions,
                summarise_requests(times, TokenGaps()),
            )
            points.append(point)
            on_point(point)
    return points


def sustained_rate(points: Sequence[LoadPoint], mode: BatchingMode, ttft_p95_s: float) -> float:
    """The highest rate that was tried at which the mode kept its p95 TTFT below a limit; 0: none.

    Rates above the first that breaks the limit do not count.
    """
    best = 0.0
    for point in sorted(points, key=lambda p: p.rate_per_s):
        if point.mode == mode:
            if not point.summaries["ttft"].percentile(95.0) < ttft_p95_s:
                break
            best = point.rate_per_s
    return best


def table(points: Sequence[LoadPoint]) -> list[str]:
    """Lines of a table; times in milliseconds."""
    head = ["requests/s", "batching", "done/s", "tokens/s", "TTFT p50", "TTFT p95", "TPOT p50"]
    head += ["E2EL p50", "E2EL p95", "queue p50", "queue p95", "preemptions"]
    return text_table([head, *map(_row, points)])


def _row(point: LoadPoint) -> list[str]:
    columns = [
        ("ttft", 50.0),
        ("ttft", 95.0),
        ("tpot", 50.0),
        ("e2el", 50.0),
        ("e2el", 95.0),
        ("queue", 50.0),
        ("queue", 95.0),
    ]
    times = [point.summaries[name].percentile(percent) * 1e3 for name, percent in columns]
    figures = [f"{point.requests_per_s:.2f}", f"{point.output_tokens_per_s:.1f}"]
    times_shown = [f"{value:,.1f}" for value in times]
    return [f"{point.rate_per_s:g}", point.mode, *figures, *times_shown, str(point.num_preemptions)]


def charts(points: Sequence[LoadPoint], ttft_p95_s: float) -> list[Chart]:
    """Throughput and latencies of the modes against the rate that is offered."""
    label = "requests/s offered"

    def series(value: Callable[[LoadPoint], float]) -> tuple[Series, ...]:
        modes = dict.fromkeys(point.mode for point in points)
        return tuple(
            Series(mode, tuple((p.rate_per_s, value(p)) for p in points if p.mode == mode))
            for mode in modes
        )

    def milliseconds(name: str) -> Callable[[LoadPoint], float]:
        return lambda point: point.summaries[name].percentile(95.0) * 1e3

    return [
        Chart("output tokens/s", label, series(lambda p: p.output_tokens_per_s)),
        Chart(
            "TTFT p95, milliseconds",
            label,
            series(milliseconds("ttft")),
            limit=ttft_p95_s * 1e3,
            is_log=True,
        ),
        Chart(
            "end-to-end latency p95, milliseconds",
            label,
            series(milliseconds("e2el")),
            is_log=True,
        ),
        Chart("TPOT p95, milliseconds", label, series(milliseconds("tpot"))),
        Chart("queue time p95, milliseconds", label, series(milliseconds("queue"))),
        Chart("preemptions", label, series(lambda p: float(p.num_preemptions))),
    ]


def verdict(points: Sequence[LoadPoint], ttft_p95_s: float) -> dict[str, Any]:
    """Highest throughput and highest sustained rate of each mode."""
    modes = dict.fromkeys(point.mode for point in points)
    return {
        mode: {
            "max_output_tokens_per_s": round(
                max(p.output_tokens_per_s for p in points if p.mode == mode), 2
            ),
            "sustained_rate_per_s": sustained_rate(points, mode, ttft_p95_s),
        }
        for mode in modes
    }
