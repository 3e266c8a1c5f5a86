"""Latency figures as plain data and as a table of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from chairlift.workload.request_metrics import Summary

NAMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
    "queue": "queue time",
}


def summaries_ms(summaries: Mapping[str, Summary]) -> dict[str, dict[str, float | int | None]]:
    """Latencies in milliseconds, ready for JSON; ``None`` where there is nothing to say."""
    return {name: _as_dict(summary) for name, summary in summaries.items()}


def _as_dict(summary: Summary) -> dict[str, float | int | None]:
    figures = {f"p{percent:g}": value for percent, value in summary.percentiles.items()}
    figures = {"mean": summary.mean, **figures, "max": summary.maximum}
    rounded = {name: _milliseconds(value) for name, value in figures.items()}
    return {"count": summary.count, **rounded}


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1e3, 3)


def latency_table(summaries: Mapping[str, Summary]) -> list[str]:
    """Lines of a table of latencies in milliseconds; metrics nobody could observe are left out."""
    shown = {name: summary for name, summary in summaries.items() if summary.count}
    if not shown:
        return ["no request finished"]
    percents = list(next(iter(shown.values())).percentiles)
    head = ["milliseconds", "mean", *(f"p{percent:g}" for percent in percents), "max"]
    rows = [
        [f"{NAMES[name]} ({name.upper()})" if name != "queue" else NAMES[name]]
        + [
            f"{value * 1e3:,.1f}"
            for value in (summary.mean, *summary.percentiles.values(), summary.maximum)
        ]
        for name, summary in shown.items()
    ]
    return text_table([head, *rows])


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
