"""``chairlift simulate`` prints figures, as text and as JSON, and refuses what makes no sense."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from chairlift.cli import main as cli


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", *words])
    code = ended.value.code
    if not isinstance(code, int):
        raise AssertionError(f"exit code {code!r}")
    return code


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(*words, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    if not isinstance(data, dict):
        raise AssertionError(f"{data!r} is no object")
    return data


SMALL = ("--num-requests", "30", "--prompt-lengths", "20", "--output-lengths", "uniform:2-9")


def test_json_has_throughput_latencies_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    data = figures(capsys, *SMALL, "--rate", "10")
    assert data["requests_finished"] == 30
    assert data["prompt_tokens"] == 600
    latencies = data["latency_ms"]
    assert isinstance(latencies, dict)
    assert list(latencies) == ["ttft", "tpot", "itl", "e2el", "queue"]
    assert latencies["ttft"]["p50"] <= latencies["ttft"]["p99"] <= latencies["ttft"]["max"]


def test_text_shows_the_same_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL) == 0
    out = capsys.readouterr().out
    assert "30 requests finished, 0 refused" in out
    assert "time to first token (TTFT)" in out


def test_the_same_command_gives_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (figures(capsys, *SMALL) for _ in range(2))
    first.pop("simulation_took_s"), again.pop("simulation_took_s")
    assert first == again
    assert figures(capsys, *SMALL, "--seed", "1")["duration_s"] != first["duration_s"]


def test_more_replicas_answer_sooner(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SMALL, "--rate", "inf", "--max-num-seqs", "2")
    one = figures(capsys, *words)["duration_s"]
    three = figures(capsys, *words, "--replicas", "3", "--routing", "least-loaded")["duration_s"]
    assert isinstance(one, float) and isinstance(three, float)
    assert three < one / 2


def test_a_trace_gives_lengths_and_arrivals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,9,3\n100,5,1\n200,7,2\n")
    words = ("--trace", str(path), "--rate", "0", "--num-requests")
    data = figures(capsys, *words, "0")
    assert (data["requests_finished"], data["prompt_tokens"]) == (3, 21)
    assert math.floor(float(str(data["duration_s"]))) == 200
    assert figures(capsys, *words, "2")["requests_finished"] == 2


def test_each_tenant_has_figures_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        '[[tenant]]\nname = "gold"\napi_keys = ["k"]\nweight = 3\n'
        '[[tenant]]\nname = "free"\napi_keys = ["l"]\ntokens_per_minute = 100\n'
    )
    words = (*SMALL, "--rate", "10", "--tenants-file", str(path), "--tenant-mix", "gold=1,free=2")
    tenants = figures(capsys, *words, "--scheduling-policy", "fair")["tenants"]
    assert isinstance(tenants, dict)
    assert list(tenants) == ["gold", "free"]
    assert sum(tenant["requests"] for tenant in tenants.values()) == 30
    assert tenants["gold"]["requests_finished"] == tenants["gold"]["requests"]
    assert tenants["free"]["requests_refused_by_quota"] > 0
    assert list(tenants["free"]["latency_ms"]) == ["ttft", "tpot", "e2el", "queue"]
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "refused by quotas" in out
    assert "Of each tenant, latencies in milliseconds:" in out
    assert [line.split()[0] for line in out.splitlines()[-4:-2]] == ["gold", "free"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "-1"), "rate must be above 0 requests/s, got -1.0"),
        (("--rate", "0"), "rate 0 takes the arrivals of a trace, and no trace is given"),
        (("--burstiness", "2"), "burstiness 2.0 is for gamma arrivals"),
        (("--output-lengths", "long"), "lengths must be N, uniform:LOW-HIGH"),
        (("--num-requests", "0"), "num_requests must be at least 1, got 0"),
        (("--num-requests", "-5"), "num_requests must be at least 0, got -5"),
        (("--replicas", "0"), "replicas must be at least 1, got 0"),
        (("--num-kv-blocks", "0"), "num_kv_blocks must be at least 1, got 0"),
        (("--cost-model", "gpu"), "cost_model must be smollm2-135m-cpu or a file that is there"),
        (("--trace", "missing.csv"), "No such file or directory"),
        (("--tenant-mix", "a"), "tenant_mix must be NAME=NUMBER,NAME=NUMBER, got 'a'"),
        (("--tenants-file", "no.toml"), "tenants file no.toml: No such file or directory"),
        (("--routing", "random"), "'random' is not one of"),
        (("--max-num-seqs", "600"), "max_num_batched_tokens (512) must be at least max_num_seqs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("chairlift: error: ")
    assert message in lines[0]
