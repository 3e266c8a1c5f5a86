"""``chairlift plan`` answers how many engines, and refuses what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chairlift.cli import main as cli

LOAD = ("--prompt-lengths", "20", "--output-lengths", "20", "--num-requests", "100")
LIMITS = ("--max-num-seqs", "4,16", "--max-num-batched-tokens", "64")
SLO = ("--slo", "ttft_p99<1s,itl_p99<300ms")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", *words])
    code = ended.value.code
    if not isinstance(code, int):
        raise AssertionError(f"exit code {code!r}")
    return code


def test_json_names_the_fleet_and_everything_tried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    svg = ("--svg", str(tmp_path / "plan.svg"))
    assert run(*LOAD, *LIMITS, *SLO, "--rate", "60/s", "--json", *svg) == 0
    data = json.loads(capsys.readouterr().out)
    small, large = (tried["rate_per_replica"] for tried in data["tried"])
    assert 0 < small < large
    fleet = data["fleet"]
    assert fleet["max_num_seqs"] == 16
    assert fleet["replicas"] >= 60 / large
    assert fleet["values_ms"]["ttft_p99<1s"] < 1000
    assert (tmp_path / "plan.svg").read_text().count("<polyline") == 2


def test_text_says_how_many_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*LOAD, *LIMITS, *SLO, "--rate", "600/min") == 0
    out = capsys.readouterr().out
    assert "1 engine bears 10 requests/s within ttft_p99<1s,itl_p99<300ms" in out
    assert "chairlift serve --max-num-seqs 16 --max-num-batched-tokens 64" in out
    assert "The best --max-num-seqs is the largest tried; a larger one may be better." in out
    assert any(line.split()[:2] == ["best", "16"] for line in out.splitlines())


def test_objectives_that_nothing_keeps_are_said_to_be_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*LOAD, *LIMITS, "--slo", "itl_p50<1ms", "--rate", "1") == 0
    out = capsys.readouterr().out
    assert "No number of engines keeps itl_p50<1ms" in out
    assert "one has at best itl_p50 1" in out  # a step takes 13 ms
    assert out.count("none within the limits") == 2


def test_requests_that_never_fit_are_said_to_be_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*LOAD, *LIMITS, *SLO, "--rate", "1", "--max-model-len", "30") == 0
    assert "No request fits into such an engine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "1"), "Missing option '--slo'"),
        ((*SLO,), "Missing option '--rate'"),
        ((*SLO, "--rate", "fast"), "rate must be a number with /s, /min or /h, got 'fast'"),
        ((*SLO, "--rate", "0/s"), "rate must be above 0 and finite, got 0.0"),
        (("--slo", "ttft<1s", "--rate", "1"), "ttft<1s says no percentile"),
        ((*SLO, "--rate", "1", "--max-num-seqs", "a"), "max_num_seqs must be integers"),
        ((*SLO, "--rate", "1", "--max-num-seqs", "999999"), "no max_num_seqs of [999999]"),
        ((*SLO, "--rate", "1", "--num-requests", "5"), "at least 100 requests, got 5"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("chairlift: error: ")
    assert message in lines[0]
