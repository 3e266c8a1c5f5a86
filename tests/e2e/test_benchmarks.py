"""The benchmark scripts run, on a tiny model, and print what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMEOUT_S = 120


def run(script: str, *words: str) -> list[dict[str, Any]]:
    """Run a benchmark; give the JSON lines it printed."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_throughput_reports_rates_and_a_breakdown_that_adds_up(random_model_path: Path) -> None:
    words = ("--model", str(random_model_path), "--cases", "1:4:4,3:8:5", "--repeat", "1")
    machine, *cases = run("throughput.py", *words)
    assert machine["num_threads"] >= 1
    assert [(case["requests"], case["steps"]) for case in cases] == [(1, 4), (3, 5)]
    for case in cases:
        assert case["output_tokens_per_s"] > 0
        assert sum(case["share"].values()) == pytest.approx(1.0, abs=0.001)


def test_scheduler_reports_the_cost_of_a_decision() -> None:
    _, *sizes = run("scheduler.py", "--running", "1", "4", "--waiting", "10", "--steps", "5")
    assert [size["running"] for size in sizes] == [1, 4]
    assert all(size["schedule_us"] > 0 and size["update_us"] > 0 for size in sizes)


def test_startup_reports_readiness_and_first_tokens(random_model_path: Path) -> None:
    _, run_figures, medians = run("startup.py", "--model", str(random_model_path), "--repeat", "1")
    assert run_figures["account"].startswith("Ready in")
    assert medians["medians"]["ready_s"] == run_figures["ready_s"] > 0
    assert medians["medians"]["first_request_ttft_ms"] > 0


def test_peers_compares_two_engines_in_turn(random_model_path: Path) -> None:
    model = str(random_model_path)
    _, loads, case = run(
        "peers.py",
        *("--model", model, "--peer", "chairlift", "--peer-python", sys.executable),
        *("--peer-model", model, "--cases", "2:4:3", "--rounds", "2"),
    )
    assert len(loads) == 2
    assert all(len(rates) == 2 for rates in case["all"].values())
    ours, peer = case["output_tokens_per_s"].values()
    assert case["ratio"] == pytest.approx(ours / peer, rel=0.01)
