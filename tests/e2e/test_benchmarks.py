"""The benchmark scripts run, on a tiny model, and print what they promise."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chairlift.models.loader import load_model

pytestmark = pytest.mark.e2e

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMEOUT_S = 120


def run(script: str, *words: str) -> list[dict[str, Any]]:
    """Run a benchmark; give the JSON lines it printed."""
    return [json.loads(line) for line in run_text(script, *words).splitlines()]


def run_text(script: str, *words: str) -> str:
    """Run a benchmark; give what it printed."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def test_throughput_reports_rates_and_a_breakdown_that_adds_up(random_model_path: Path) -> None:
    words = ("--model", str(random_model_path), "--cases", "1:4:4,3:8:5", "--repeat", "1")
    settings = ("--num-kv-blocks", "77", "--max-num-batched-tokens", "200", "--dtype", "float32")
    machine, *cases = run("throughput.py", *words, *settings)
    assert machine["num_threads"] >= 1
    assert machine["settings"]["num_kv_blocks"] == 77
    assert machine["settings"]["max_num_batched_tokens"] == 200
    assert (machine["dtype"], machine["settings"]["enable_prefix_caching"]) == ("float32", False)
    memory = machine["memory_mb"]
    assert 0 < memory["weights"] < memory["resident"] <= cases[-1]["most_resident_mb"]
    assert memory["overhead"] == pytest.approx(memory["resident"] - memory["weights"], abs=0.2)
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


def test_peers_compares_engines_in_turn(random_model_path: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f"""cases = "2:4:3,1:40:1"

        [[engine]]
        name = "ours"
        driver = "chairlift"
        model = "{{dir}}/{random_model_path.name}"
        format = "16-bit"
        env = {{ CHAIRLIFT_ISA = "portable" }}

        [[engine]]
        name = "before"
        driver = "chairlift"
        model = "{{dir}}/{random_model_path.name}"
        format = "16-bit"
        options = {{ dtype = "float32" }}
        is_peer = true

        [[engine]]
        name = "broken"
        driver = "chairlift"
        model = "nowhere.gguf"
        format = "4-bit"
        """
    )
    folder = ("--dir", str(random_model_path.parent))
    text = run_text("peers.py", str(suite), *folder, "--rounds", "2")
    assert "left out: broken ended without an answer" in text
    records = [json.loads(line) for line in text.splitlines() if "engine" in line]
    assert [record["engine"] for record in records] == ["ours", "before"]
    for record in records:
        assert list(map(len, record["tokens_per_s"].values())) == [2, 2]
    assert "| tokens/s | 2 x 4, output | 1 x 40, prefill |" in text
    cells = next(line for line in text.splitlines() if "ours / best peer" in line).split("|")
    medians = [statistics.median(record["tokens_per_s"]["2:4:3"]) for record in records]
    assert float(cells[2]) == pytest.approx(medians[0] / medians[1], abs=0.02)


def test_a_random_model_of_a_shape_can_be_loaded(random_model_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "random"
    run_text("random_model.py", "tiny", str(folder), "--tokenizer", str(random_model_path))
    model = load_model(str(folder))
    assert (model.spec.num_layers, model.spec.hidden_size, model.spec.vocab_size) == (2, 64, 300)
    assert model.spec.attention_bias
    weights = {tensor.name: tensor.data.tobytes() for tensor in model.weights}
    first, second = (weights[f"layers.{i}.q_proj"] for i in (0, 1))
    assert len(first) == len(second)
    assert first != second
