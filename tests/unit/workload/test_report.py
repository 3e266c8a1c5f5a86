"""Figures are printed in milliseconds, aligned, without what nobody observed."""

from __future__ import annotations

import numpy as np

from chairlift.workload.report import latency_table, summaries_ms, text_table
from chairlift.workload.request_metrics import summarise

NONE = summarise(np.zeros(0))
TTFT = summarise(np.array([0.1, 0.2, 1.5]))


def test_data_are_milliseconds_and_null_where_nothing_was_seen() -> None:
    data = summaries_ms({"ttft": TTFT, "queue": NONE})
    assert data["ttft"] == {
        "count": 3, "mean": 600.0, "p50": 200.0, "p90": 1500.0, "p95": 1500.0, "p99": 1500.0,
        "max": 1500.0,
    }  # fmt: skip
    assert data["queue"]["count"] == 0 and data["queue"]["p50"] is None


def test_table_leaves_out_what_nobody_observed() -> None:
    lines = latency_table({"ttft": TTFT, "queue": NONE})
    assert lines == [
        "milliseconds                 mean    p50      p90      p95      p99      max",
        "time to first token (TTFT)  600.0  200.0  1,500.0  1,500.0  1,500.0  1,500.0",
    ]


def test_table_of_nothing_says_so() -> None:
    assert latency_table({"ttft": NONE}) == ["no request finished"]


def test_columns_are_aligned() -> None:
    assert text_table([["a", "b"], ["long", "1000"]]) == ["a        b", "long  1000"]
