"""The accuracy benchmark runs, on a tiny model, and prints what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "simulation_accuracy.py"


def test_simulation_accuracy_compares_every_rate(random_model_path: Path) -> None:
    words = ["--model", str(random_model_path), "--rates", "20", "200", "--num-requests", "12"]
    words += ["--vocab-size", "250", "--num-kv-blocks", "512"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    _, fit, slow, fast, worst = map(json.loads, done.stdout.splitlines())
    assert fit["num_steps"] >= 10
    assert [line["rate_per_s"] for line in (slow, fast)] == [20, 200]
    for line in (slow, fast):
        assert (line["finished"], line["failed"]) == (12, 0)
        assert line["difference"].keys() == line["measured"].keys() == line["simulated"].keys()
    assert worst["largest_difference"]["ttft_p50_ms"] == max(
        abs(line["difference"]["ttft_p50_ms"]) for line in (slow, fast)
    )
