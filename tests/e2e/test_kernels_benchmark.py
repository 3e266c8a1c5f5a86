"""The kernel benchmark runs and reports what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels.py"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The JSON line of a short run on a model of one layer."""
    words = ["--layers", "1", "--seconds", "0.01", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.e2e
def test_kernels_reports_the_machine_and_products_of_each_format(report: dict[str, Any]) -> None:
    assert report["barrier_ns"] > 0
    assert report["read_gb_per_s"] > 0
    assert report["peak_gops"].keys() == {"float32", "bfloat16", "int8"}
    assert min(report["peak_gops"].values()) > 0
    products = {(p["weights"], p["rows"]): p for p in report["products"]}
    weights = ("bfloat16", "int8", "Q4_1", "Q8_0")
    assert products.keys() == {(w, rows) for w in weights for rows in (1, 8, 32, 64, 512)}
    for product in products.values():
        assert product["ms"] > 0
        assert product["floor"]["ms"] > 0
    one_row = [products[w, 1]["floor"] for w in weights]
    assert {floor["bound"] for floor in one_row} == {"memory"}
    bytes_per_weight = [floor["ms"] / one_row[0]["ms"] * 2 for floor in one_row]
    assert bytes_per_weight == pytest.approx([2, 1, 0.625, 1.0625], rel=1e-2)


@pytest.mark.e2e
def test_kernels_reports_the_phases_of_each_step_beside_their_floors(
    report: dict[str, Any],
) -> None:
    results = {(r["setup"], r["case"]): r for r in report["results"]}
    for setup in ("bfloat16", "int8", "gguf"):
        for rows in (1, 8, 32, 64):
            assert results[setup, f"decode {rows} x 128"]["floors"].keys() == {
                "qkv",
                "o",
                "gate_up",
                "down",
                "head",
                "attention",
            }
    for kv in ("int8-kv", "float32-kv"):
        for case in ("decode 64 x 128", "decode 32 x 1024", "prefill 1 x 512"):
            assert results[kv, case]["floors"].keys() == {"attention"}
    for result in results.values():
        assert result["best_tokens_per_s"] >= result["tokens_per_s"] > 0
        assert result["floors"].keys() < result["phases_ms"].keys()
        floors = [floor["ms"] for floor in result["floors"].values()]
        assert min(floors) > 0
        assert result["floor_ms"] == pytest.approx(sum(floors), abs=0.001)
    decode = results["bfloat16", "decode 1 x 128"]
    prefill = results["bfloat16", "prefill 1 x 512"]
    assert decode["floors"]["gate_up"]["bound"] == "memory"
    assert prefill["floors"]["head"]["bound"] == "memory"
    assert prefill["floors"]["gate_up"]["ms"] > decode["floors"]["gate_up"]["ms"]
    in_file = results["gguf", "decode 1 x 128"]
    ratio = in_file["floors"]["gate_up"]["ms"] / decode["floors"]["gate_up"]["ms"]
    assert ratio == pytest.approx(0.3125, rel=2e-2)
