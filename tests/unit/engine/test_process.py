"""The engine in its own process: start, answers, and every way it can end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.child import EngineChild
from chairlift.engine.options import engine_config
from chairlift.engine.process import EngineProcess
from chairlift.errors import ConfigError, EngineDeadError, EngineError, ModelLoadError
from chairlift.outputs import RequestOutput
from chairlift.sampling_params import SamplingParams

OPTIONS = {"num_kv_blocks": 64, "max_num_seqs": 8, "num_threads": 1, "dtype": "float32"}
DEATH_TIMEOUT_S = 5.0  # far beyond what it takes: the machine may be busy


@pytest.fixture
async def engine(successor_model_path: Path) -> AsyncIterator[AsyncEngine]:
    started = await AsyncEngine.start(engine_config(str(successor_model_path), **OPTIONS))
    async with started:
        yield started


def _child_pid(engine: AsyncEngine) -> int:
    process = engine._transport
    assert isinstance(process, EngineProcess)
    return process.pid


async def _answer(engine: AsyncEngine, prompt: str, **params: object) -> RequestOutput:
    values = {"temperature": 0.0, "max_tokens": 5} | params
    request = await engine.input_processor.process(
        "r",
        prompt,
        SamplingParams(**values),  # type: ignore[arg-type]
    )
    async with engine.generate(request, stream=False) as stream:
        return await anext(stream)


async def test_many_requests_are_answered_at_once(engine: AsyncEngine) -> None:
    prompts = ["ABC", "xyz", "M"] * 6
    answers = await asyncio.gather(*[_answer(engine, prompt) for prompt in prompts])
    assert [a.choices[0].text for a in answers] == ["DEFGH", "01234", "NOPQR"] * 6
    stats = engine.stats()
    assert stats.generation_tokens_total == 18 * 5
    assert stats.requests_finished == {"length": 18}


async def test_the_start_is_accounted_for_part_by_part(engine: AsyncEngine) -> None:
    report = engine.start_report
    assert sum(seconds for _, seconds in report.phases) == pytest.approx(report.total_s)
    names = [name for name, _ in report.phases]
    assert names[:4] == ["start process", "import", "wait for flags", "open model"]
    assert "warm-up" in names
    assert engine.model_name == "tiny-successor"
    assert engine.limits.num_kv_blocks == 64


async def test_closing_a_stream_frees_its_blocks_in_the_child(engine: AsyncEngine) -> None:
    request = await engine.input_processor.process(
        "r", "A", SamplingParams(max_tokens=900, ignore_eos=True)
    )
    async with engine.generate(request) as stream:
        await anext(stream)
        assert engine.stats().num_live_blocks > 0
    # The next request's steps show what the core holds besides it.
    await _answer(engine, "B")
    assert await engine.drain(DEATH_TIMEOUT_S) == 0
    assert engine.stats().num_running == 0


async def test_an_idle_engine_uses_no_cpu(engine: AsyncEngine) -> None:
    await _answer(engine, "A")
    await asyncio.sleep(0.2)  # threads of the kernels go to sleep after a bounded spin
    before = _cpu_ticks(_child_pid(engine))
    await asyncio.sleep(0.5)
    assert _cpu_ticks(_child_pid(engine)) - before <= 2


async def test_killing_the_process_fails_what_is_running(engine: AsyncEngine) -> None:
    request = await engine.input_processor.process(
        "r", "A", SamplingParams(max_tokens=900, ignore_eos=True)
    )
    stream = engine.generate(request)
    await anext(stream)
    os.kill(_child_pid(engine), signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        async with asyncio.timeout(DEATH_TIMEOUT_S):
            async for _ in stream:
                pass
    assert not engine.is_alive
    assert "SIGKILL" in str(await engine.wait_dead())
    with pytest.raises(EngineDeadError):
        engine.generate(request)


async def test_terminal_signals_are_the_parent_s_affair(engine: AsyncEngine) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(_child_pid(engine), number)
    assert (await _answer(engine, "ABC")).choices[0].text == "DEFGH"
    assert os.getpgid(_child_pid(engine)) != os.getpgid(0)


async def test_closing_ends_the_process(successor_model_path: Path) -> None:
    engine = await AsyncEngine.start(engine_config(str(successor_model_path), **OPTIONS))
    pid = _child_pid(engine)
    await engine.close()
    await engine.close()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_model_that_does_not_exist_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as info:
        await AsyncEngine.start(engine_config(str(tmp_path / "missing.gguf")))
    assert "\n" not in str(info.value)


async def test_an_error_in_the_child_arrives_as_what_it_was(successor_model_path: Path) -> None:
    config = engine_config(str(successor_model_path), max_model_len=10**6)
    with pytest.raises(ConfigError, match="max_model_len must be at most 8192"):
        await AsyncEngine.start(config)


async def test_a_child_that_ends_before_it_is_ready_is_an_error() -> None:
    process = EngineProcess(EngineChild.spawn("this"))  # prints a poem and ends
    try:
        with pytest.raises(EngineError, match=r"did not start: .* exit code 0"):
            await process.start()
    finally:
        await process.close()


PARENT = """
import asyncio, sys
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.options import engine_config

async def main():
    engine = await AsyncEngine.start(engine_config(sys.argv[1], num_kv_blocks=16, num_threads=1))
    print(engine._transport.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_process_dies_with_its_parent(successor_model_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(successor_model_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        child = os.pidfd_open(child_pid)
        parent.kill()
        try:
            # The file descriptor of a process becomes readable when the process ends.
            assert select.select([child], [], [], DEATH_TIMEOUT_S)[0]
        finally:
            os.close(child)


async def test_an_engine_in_a_thread_gives_the_same_answers(successor_model_path: Path) -> None:
    config = engine_config(str(successor_model_path), **OPTIONS)
    async with await AsyncEngine.start(config, in_process=True) as engine:
        answers = await asyncio.gather(*[_answer(engine, prompt) for prompt in ("ABC", "xyz")])
    assert [a.choices[0].text for a in answers] == ["DEFGH", "01234"]


def _cpu_ticks(pid: int) -> int:
    """User and system time of a process, in clock ticks (hundredths of a second)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_ticks_count_work() -> None:
    before, deadline = _cpu_ticks(os.getpid()), time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    assert _cpu_ticks(os.getpid()) > before
