"""The request that the server answers itself before it is ready, and when the process began."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.engine.front import Front, build_front
from chairlift.engine.rehearsal import rehearsal_engine
from chairlift.models.loader import load_model
from chairlift.sampling_params import SamplingParams
from chairlift.server.process_start import process_started_s
from chairlift.server.rehearsal import rehearse


@pytest.fixture(scope="module")
def front(successor_model_path: Path) -> Front:
    return build_front(load_model(str(successor_model_path)))


def test_both_kinds_of_answers_succeed(front: Front) -> None:
    assert front.chat_template is not None
    assert rehearse(front) == [200, 200]


def test_a_model_without_a_chat_template_completes_instead(front: Front) -> None:
    assert rehearse(replace(front, chat_template=None)) == [200, 200]


async def test_the_engine_behind_it_gives_as_many_tokens_as_asked_for(front: Front) -> None:
    async with rehearsal_engine(front) as engine:
        request = await engine.input_processor.process("r", "A", SamplingParams(max_tokens=5))
        pieces = [piece async for piece in engine.generate(request)]
    assert sum(len(piece.choices[0].token_ids) for piece in pieces) == 5
    assert pieces[-1].finished


def test_the_start_of_the_process_lies_before_now_and_does_not_move() -> None:
    first, second = process_started_s(), process_started_s()
    assert first < time.monotonic()
    assert second == pytest.approx(first, abs=0.02)


def test_the_start_time_is_found_behind_a_name_with_blanks_and_brackets(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["0"] * 19 + [str(int((time.clock_gettime(time.CLOCK_BOOTTIME) - 7) * ticks)), "0"]
    stat = tmp_path / "stat"
    stat.write_text(f"12 (a ) b) {' '.join(fields)}\n")
    assert time.monotonic() - process_started_s(stat) == pytest.approx(7, abs=0.1)


def test_without_the_kernel_s_word_the_process_starts_now(tmp_path: Path) -> None:
    assert time.monotonic() - process_started_s(tmp_path / "none") < 1.0
