"""The preset gives the steps that were measured for it (``simulate/cost_model.py``)."""

from __future__ import annotations

import pytest

from chairlift.core.step_size import StepSize, context_tokens
from chairlift.simulate.cost_model import PRESETS

COST = PRESETS["smollm2-135m-cpu"]


@pytest.mark.parametrize(("num_seqs", "step_ms"), [(1, 13.9), (8, 17.9), (32, 36.4), (64, 61.7)])
def test_decode_steps_take_what_was_measured(num_seqs: int, step_ms: float) -> None:
    seconds = COST.seconds(StepSize(num_seqs, 128 * num_seqs, num_seqs, num_seqs))
    assert seconds * 1e3 == pytest.approx(step_ms, rel=0.08)


def test_prompts_are_read_at_the_rate_measured() -> None:
    chunks = [StepSize(512, context_tokens(start, 512), 1, start // 512) for start in (0, 512)]
    seconds = sum(map(COST.seconds, chunks))
    assert 1024 / seconds == pytest.approx(2043, rel=0.08)
