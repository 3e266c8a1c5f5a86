"""``chairlift bench`` measures a server and says what the figures do not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.stand_in_server import StandIn, completion, stand_in, with_status

from chairlift import LLM, SamplingParams
from chairlift.cli import main as cli
from chairlift.core.cost_model import CostModel
from chairlift.simulate.cost_model import save_cost_model


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *words])
    code = ended.value.code
    if not isinstance(code, int):
        raise AssertionError(f"exit code {code!r}")
    return code


def answer(request: dict[str, Any]) -> bytes:
    """Finds half of every prompt cached; fails prompts of 13 tokens."""
    length = len(request["prompt"])
    if length == 13:
        return with_status("400 Bad Request", b"unlucky")
    return completion(request["max_tokens"], length, num_cached=length // 2)


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A stand-in server on an event loop in a thread."""
    loop, ready, running = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        async with stand_in(answer) as started:
            stop = asyncio.Event()
            running.extend([started, stop])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    yield running[0]
    loop.call_soon_threadsafe(running[1].set)
    thread.join()
    loop.close()


def words_for(server: StandIn, *words: str) -> tuple[str, ...]:
    lengths = ("--prompt-lengths", "10", "--output-lengths", "4")
    amount = ("--num-requests", "6", "--rate", "inf")
    return ("serving", "--base-url", server.url, *lengths, *amount, *words)


def test_serving_reports_figures_and_goodput_as_json(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words_for(server, "--goodput", "ttft<60s", "--json")) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["requests_finished"], data["requests_failed"]) == (6, 0)
    assert data["output_tokens"] == 24
    assert data["goodput_per_s"] == pytest.approx(data["requests_per_s"], rel=0.01)
    assert data["latency_ms"]["itl"]["count"] == 18
    assert data["server_mean_queue_ms"] == 500.0


def test_serving_asks_for_the_first_model_unless_one_is_named(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words_for(server)) == 0
    assert run(*words_for(server, "--model", "mine")) == 0
    capsys.readouterr()
    assert [request["model"] for request in server.requests] == ["first"] * 6 + ["mine"] * 6


def test_serving_warns_when_the_prefix_cache_answered(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """O11 (vllm#52884, vllm#54227)"""
    assert run(*words_for(server)) == 0
    assert "warning: 50.0% of the prompt tokens came from" in capsys.readouterr().err


def test_two_runs_never_send_the_same_prompts_unless_told_to(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """O11"""
    for words in ((), (), ("--prompt-seed", "3"), ("--prompt-seed", "3")):
        assert run(*words_for(server, *words)) == 0
    capsys.readouterr()
    prompts = [sorted(r["prompt"] for r in server.requests[i : i + 6]) for i in range(0, 24, 6)]
    assert prompts[0] != prompts[1]
    assert prompts[2] == prompts[3]


def test_serving_says_how_many_requests_failed_and_why(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words_for(server, "--prompt-lengths", "13")) == 0
    out, err = capsys.readouterr()
    assert "failed 6 times: status 400: unlucky" in out
    assert "no request finished" in out
    assert "warning: 6 requests failed and are in none of the figures" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("serving", "--base-url", "http://127.0.0.1:1"), 1, "cannot connect to 127.0.0.1:1"),
        (("serving", "--base-url", "here"), 2, "base_url must be http://HOST:PORT"),
        (("serving", "--goodput", "fast"), 2, "an objective is METRIC_pPERCENT<LIMIT"),
        (("serving", "--max-concurrency", "-1"), 2, "max_concurrency must be at least 0"),
        (("serving", "--vocab-size", "1"), 2, "vocab_size must be at least 2, got 1"),
        (("calibrate", "missing.gguf"), 2, "missing.gguf"),
        (("dance",), 2, "No such command 'dance'"),
        ((), 2, "Missing command"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("chairlift: error: ")
    assert message in lines[0]


SIMULATED = (
    *("compare", "--cost-model", "smollm2-135m-cpu", "--max-num-seqs", "8"),
    *("--num-requests", "40", "--rates", "0.2,4", "--seconds", "0"),
    *("--output-lengths", "lognormal:40,200,400"),
)


def test_compare_shows_the_modes_side_by_side(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(*SIMULATED, "--json", "--svg", str(tmp_path / "compare.svg")) == 0
    data = json.loads(capsys.readouterr().out)
    assert [p["batching"] for p in data["points"]] == ["static", "dynamic", "continuous"] * 2
    static, continuous = data["modes"]["static"], data["modes"]["continuous"]
    assert continuous["max_output_tokens_per_s"] > static["max_output_tokens_per_s"]
    assert continuous["sustained_rate_per_s"] > static["sustained_rate_per_s"]
    assert (tmp_path / "compare.svg").read_text().count("<polyline") == 18


def test_the_default_comparison_shows_what_continuous_batching_is_worth(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Output lengths with a heavy tail, even arrivals, costs as measured on two cores."""
    model = tmp_path / "cost.json"
    save_cost_model(model, CostModel(0.0132, 0.000167, 2.5e-7, 0.0000755), {})
    assert run("compare", "--cost-model", str(model), "--json") == 0
    modes = json.loads(capsys.readouterr().out)["modes"]
    static, continuous = modes["static"], modes["continuous"]
    assert static["sustained_rate_per_s"] > 0
    assert continuous["sustained_rate_per_s"] >= 10 * static["sustained_rate_per_s"]
    assert continuous["max_output_tokens_per_s"] >= 3 * static["max_output_tokens_per_s"]


def test_compare_prints_a_table_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SIMULATED) == 0
    out = capsys.readouterr().out
    assert "TTFT p95" in out
    assert "requests/s with p95 TTFT below 1 s" in out


def test_compare_runs_the_real_engine(
    random_model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rates", "200", "--num-requests", "6", "--seconds", "0", "--output-lengths", "4")
    assert run("compare", str(random_model_path), "--num-kv-blocks", "64", "--json", *words) == 0
    data = json.loads(capsys.readouterr().out)
    assert [p["latency_ms"]["ttft"]["count"] for p in data["points"]] == [6, 6, 6]


def test_calibrate_writes_a_cost_model_that_simulate_takes(
    random_model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "cost.json")
    limits = ("--max-num-seqs", "4", "--num-kv-blocks", "600")
    assert run("calibrate", str(random_model_path), "--output", path, *limits) == 0
    assert "a step takes" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", "--cost-model", path, "--num-requests", "5"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rates", "0"), "rates must be numbers above 0 with commas between, got '0'"),
        (("--rates", "a,b"), "got 'a,b'"),
        (("--ttft-limit", "0"), "ttft_limit must be above 0 seconds, got 0.0"),
        (("--cost-model", "gpu"), "cost_model must be"),
        (("--max-model-len", "20"), "40 requests were refused"),
    ],
)
def test_bad_comparisons_are_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SIMULATED, *words) == 2
    assert message in capsys.readouterr().err


def test_calibrate_fits_to_the_log_of_an_engine(
    random_model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "steps.jsonl")
    with LLM(str(random_model_path), num_kv_blocks=64, step_log=log) as llm:
        llm.generate([[5, 6, 7]], SamplingParams(max_tokens=60, ignore_eos=True))
    assert run("calibrate", "--from-log", log, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["about"] == {"from": log} | data["about"]
    assert 10 <= data["about"]["num_steps"] <= 60
    assert sum(data["coefficients_s"].values()) > 0
