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
    words = ["--model", str(random_model_path), "--shares", "0.3", "2", "--num-requests", "12"]
    words += ["--vocab-size", "250", "--num-kv-blocks", "512", "--seconds", "0"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    _, fit, slow, fast, worst = map(json.loads, done.stdout.splitlines())
    assert fit["num_steps"] >= 10
    assert fit["capacity_per_s"] > 0
    assert [line["share_of_capacity"] for line in (slow, fast)] == [0.3, 2]
    for line in (slow, fast):
        assert (line["finished"], line["failed"]) == (12, 0)
        for kind in ("at_own_speed", "foretold"):
            simulated, difference = line[kind]["simulated"], line[kind]["difference"]
            assert simulated.keys() == difference.keys() == line["measured"].keys()
            assert line[kind]["level"] > 0
        # The steps of the load itself say how fast the machine was.
        assert abs(line["at_own_speed"]["difference"]["output_tokens_per_s"]) < 1
    for kind in ("at_own_speed", "foretold"):
        assert worst["largest_difference"][kind]["ttft_p50_ms"] == max(
            abs(line[kind]["difference"]["ttft_p50_ms"]) for line in (slow, fast)
        )
