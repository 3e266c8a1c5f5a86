"""What an engine logs about its steps is read back as records to fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chairlift.core.cost_model import StepRecord
from chairlift.core.scheduler_output import ScheduledRequest, SchedulerOutput
from chairlift.core.step_size import StepSize
from chairlift.engine.step_log import StepLog
from chairlift.errors import ConfigError
from chairlift.simulate.step_records import read_step_log


def decodes(num_seqs: int) -> SchedulerOutput:
    rows = [ScheduledRequest(str(i), 9, 1, (), False, True) for i in range(num_seqs)]
    return SchedulerOutput(0, rows)


def log_steps(path: Path, *steps: tuple[float, float, int]) -> None:
    """Steps as (end, seconds, requests)."""
    ends = iter([end for end, _, _ in steps])
    log = StepLog(path, lambda: next(ends))
    for _, seconds, num_seqs in steps:
        log(decodes(num_seqs), seconds)


def test_a_step_takes_until_the_next_unless_the_engine_paused(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log_steps(path, (10.1, 0.1, 1), (10.302, 0.2, 2), (12.0, 0.3, 3))
    assert [record.size for record in read_step_log(path)] == [
        StepSize(1, 10, 1, 1),
        StepSize(2, 20, 2, 2),
        StepSize(3, 30, 3, 3),
    ]
    seconds = [record.seconds for record in read_step_log(path)]
    # The second starts 2 ms after the first ended; the third more than a second later.
    assert seconds == pytest.approx([0.102, 0.2, 0.3])


def test_lines_can_be_read_while_the_engine_runs(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl", lambda: 5.0)
    log(decodes(1), 0.5)
    line = json.loads((tmp_path / "steps.jsonl").read_text())
    assert line == {
        "started_s": 4.5,
        "seconds": 0.5,
        "num_tokens": 1,
        "num_context_tokens": 10,
        "num_seqs": 1,
        "num_head_rows": 1,
    }
    assert read_step_log(tmp_path / "steps.jsonl") == [StepRecord(StepSize(1, 10, 1, 1), 0.5)]


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"started_s": 1, "seconds": 1, "speed": 3}'])
def test_another_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "steps.jsonl").write_text(line + "\n")
    with pytest.raises(ConfigError, match="line 1 is no step"):
        read_step_log(tmp_path / "steps.jsonl")


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"step_log .* cannot be written: No such file"):
        StepLog(tmp_path / "missing" / "steps.jsonl")
