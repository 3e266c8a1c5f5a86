"""Steps written down for people and tools."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeRunner, make_limits, make_request

from chairlift.config import SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.step_log import StepLog
from chairlift.engine.step_numbers import PARTS, StepNumbers
from chairlift.engine.step_trace import StepTrace
from chairlift.errors import ConfigError
from chairlift.runner.times import RunnerTimes


class TimedRunner(FakeRunner):
    """Says that each step took a millisecond to build and ten in the model."""

    def __init__(self) -> None:
        super().__init__(block_size=4)
        self.times = RunnerTimes()

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        self.times.build_ns += 1_000_000
        self.times.forward_ns += 10_000_000
        return super().execute(plan)


@pytest.fixture
def core() -> EngineCore:
    runner = TimedRunner()
    config = SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=16)
    core = EngineCore(
        Scheduler(config, make_limits(num_kv_blocks=8)), runner, runner_times=runner.times
    )
    core.add_request(make_request("a", 6, max_tokens=3))
    core.add_request(make_request("b", 2, max_tokens=1))
    return core


def traced(core: EngineCore, path: Path, num_steps: int) -> list[dict[str, Any]]:
    core.observe_steps(StepTrace(path, StepNumbers(core.stats), clock=lambda: 50.0))
    for _ in range(num_steps):
        core.step()
    text = path.read_text().rstrip().removesuffix(",")
    events: list[dict[str, Any]] = json.loads(text + "]")
    return events


def test_each_step_is_a_span_with_tokens_by_kind(core: EngineCore, tmp_path: Path) -> None:
    steps = [e for e in traced(core, tmp_path / "t.json", 3) if e["name"] == "step"]
    kinds = [(e["args"]["num_prefill_tokens"], e["args"]["num_decode_tokens"]) for e in steps]
    assert kinds == [(6, 0), (0, 1), (0, 1)]
    assert all(e["ph"] == "X" and e["ts"] + e["dur"] == pytest.approx(50e6) for e in steps)


def test_the_parts_of_a_step_follow_one_another_inside_it(core: EngineCore, tmp_path: Path) -> None:
    events = traced(core, tmp_path / "t.json", 2)
    spans = [e for e in events if e["ph"] == "X"]
    parts = spans[len(spans) // 2 + 1 :]
    assert [e["name"] for e in parts] == list(PARTS)
    by_name = {e["name"]: e["dur"] for e in parts}
    assert (by_name["build"], by_name["forward"]) == (1000.0, 10000.0)
    for before, after in pairwise(parts):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=0.3)


def test_requests_and_blocks_are_counters(core: EngineCore, tmp_path: Path) -> None:
    counters = {
        e["name"]: e["args"] for e in traced(core, tmp_path / "t.json", 1) if e["ph"] == "C"
    }
    assert counters["requests"] == {"running": 1, "waiting": 1}
    assert counters["KV blocks"] == {"live": 2, "cached": 0, "free": 6}
    assert counters["tokens"] == {"decode": 0, "prefill": 6}


def test_a_step_log_with_numbers_has_kinds_blocks_and_parts(
    core: EngineCore, tmp_path: Path
) -> None:
    path = tmp_path / "steps.jsonl"
    core.observe_steps(StepLog(path, numbers=StepNumbers(core.stats)))
    core.step()
    line = json.loads(path.read_text())
    assert (line["num_prefill_tokens"], line["num_decode_tokens"]) == (6, 0)
    assert (line["num_running"], line["num_waiting"], line["num_live_blocks"]) == (1, 1, 2)
    assert line["parts_s"]["forward"] == 0.01
    assert set(line["parts_s"]) == set(PARTS)


def test_a_step_log_has_the_blocks_copied_between_the_tiers(tmp_path: Path) -> None:
    config = SchedulerConfig(max_num_batched_tokens=128, preemption_mode="swap")
    limits = make_limits(num_kv_blocks=8, num_swap_blocks=8)
    scheduler = Scheduler(config, limits, enable_prefix_caching=False)
    core = EngineCore(scheduler, FakeRunner(block_size=4))
    core.observe_steps(StepLog(tmp_path / "steps.jsonl", numbers=StepNumbers(core.stats)))
    core.add_request(make_request("a", 7, max_tokens=20))
    core.add_request(make_request("b", 7, max_tokens=12))
    while core.has_work:
        core.step()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    stats = core.stats().scheduler
    for name in ("swapped_out_blocks", "swapped_in_blocks"):
        total = getattr(stats, f"{name}_total")
        assert sum(line[f"num_{name}"] for line in lines) == total > 0


def test_a_trace_that_cannot_be_written_is_refused_by_name(
    core: EngineCore, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"step_trace .* cannot be written: No such file"):
        StepTrace(tmp_path / "missing" / "t.json", StepNumbers(core.stats))
