"""The kernel benchmark runs and reports what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels.py"


@pytest.mark.e2e
def test_kernels_reports_the_machine_and_the_phases_of_each_case() -> None:
    words = ["--layers", "1", "--seconds", "0.01", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["barrier_ns"] > 0
    assert report["read_gb_per_s"] > 0
    assert report["gemm_gflops"].keys() == {"1", "8", "32", "64", "512"}
    assert [result["case"] for result in report["results"]][:2] == [
        "decode 1 x 128",
        "decode 8 x 128",
    ]
    for result in report["results"]:
        assert result["best_tokens_per_s"] >= result["tokens_per_s"] > 0
        assert result["phases_ms"]["gate_up"] > 0
        assert result["floors_ms"].keys() < result["phases_ms"].keys()
        assert min(result["floors_ms"].values()) > 0
        assert result["floor_ms"] == pytest.approx(sum(result["floors_ms"].values()), abs=0.001)
    decode, prefill = (
        next(r for r in report["results"] if r["case"] == name)
        for name in ("decode 1 x 128", "prefill 1 x 512")
    )
    assert decode["bound_by"]["gate_up"] == "memory"
    assert prefill["bound_by"]["head"] == "memory"
    assert prefill["floors_ms"]["gate_up"] > decode["floors_ms"]["gate_up"]
