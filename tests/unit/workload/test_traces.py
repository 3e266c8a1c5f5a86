"""Trace files in the format of the Azure LLM inference traces are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from chairlift.errors import ConfigError
from chairlift.workload.traces import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_timestamps_with_seven_digits_count_from_the_first(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        HEADER + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    )
    assert list(read_trace(path).rows()) == [
        (0.0, 374, 44),
        (pytest.approx(4.314579, abs=2e-6), 396, 109),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2024-05-10 00:00:00.5+00:00", "2024-05-10 00:00:02+00:00"),
        ("2024-05-10 00:00:00.5", "2024-05-10 02:00:02+02:00"),
        ("10.5", "12"),
    ],
)
def test_zones_and_plain_seconds_are_understood(tmp_path: Path, first: str, second: str) -> None:
    path = trace(tmp_path, HEADER + f"{first},1,1\n{second},1,1\n")
    assert read_trace(path).arrival_s.tolist() == [0.0, 1.5]


def test_requests_are_put_in_order_and_other_columns_ignored(tmp_path: Path) -> None:
    path = trace(
        tmp_path, "GeneratedTokens,model,ContextTokens,TIMESTAMP\n5,a,50,9\n6,b,60,4\n7,c,70,5\n"
    )
    assert list(read_trace(path).rows()) == [(0.0, 60, 6), (1.0, 70, 7), (5.0, 50, 5)]


def test_a_limit_reads_the_start_of_the_file(tmp_path: Path) -> None:
    path = trace(tmp_path, HEADER + "0,1,1\n1,2,2\n2,3,3\n")
    assert len(read_trace(path, limit=2)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have the columns TIMESTAMP, ContextTokens, GeneratedTokens; TIMESTAMP is not"),
        ("TIMESTAMP,ContextTokens\n0,1\n", "GeneratedTokens is not"),
        (HEADER, "holds no request"),
        (HEADER + "0,1,1\nsoon,1,1\n", "line 3: Invalid isoformat string: 'soon'"),
        (HEADER + "0,one,1\n", "line 2: invalid literal"),
        (HEADER + "0,1\n", "line 2: "),
        (HEADER + "0,1,0\n", "line 2: token counts must be at least 1"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(trace(tmp_path, text))
