"""Temperature 0: the largest logit, the lowest id among equals."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.runner.sampler_reference import sample_positions

from chairlift.runner.sampler import GREEDY_TEMPERATURE
from chairlift.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def _greedy_token(logits: np.ndarray) -> int:
    return int(sample_positions(logits.astype(np.float32), GREEDY, 1).token_ids[0])


@pytest.mark.parametrize("vocab_size", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 1024, 1025, 4099])
def test_greedy_takes_the_largest_logit_wherever_it_is(vocab_size: int) -> None:
    logits = np.random.default_rng(vocab_size).standard_normal(vocab_size).astype(np.float32)
    for place in {0, vocab_size // 2, vocab_size - 1}:
        peaked = logits.copy()
        peaked[place] = 10.0
        assert _greedy_token(peaked) == place


@pytest.mark.parametrize("value", [5.0, 0.0, -5.0])
def test_ties_go_to_the_lowest_id(value: float) -> None:
    logits = np.full(200, -9.0)
    logits[[31, 32, 150, 199]] = value
    assert _greedy_token(logits) == 31


def test_negative_and_positive_zero_are_a_tie() -> None:
    logits = np.full(40, -1.0)
    logits[3], logits[7] = -0.0, 0.0
    assert _greedy_token(logits) == 3
    logits[3], logits[7] = 0.0, -0.0
    assert _greedy_token(logits) == 3


def test_excluded_tokens_do_not_disturb_the_choice() -> None:
    logits = np.full(50, -np.inf)
    logits[44] = -1e30
    assert _greedy_token(logits) == 44


def test_greedy_needs_no_seed_and_ignores_filters() -> None:
    logits = np.arange(30, dtype=np.float32)
    params = SamplingParams(temperature=0.0, top_k=3, top_p=0.1, min_p=0.5)
    assert sample_positions(logits, params, 5).token_ids.tolist() == [29] * 5


def test_a_temperature_of_almost_zero_is_greedy() -> None:
    logits = np.zeros(30, dtype=np.float32)
    params = SamplingParams(temperature=GREEDY_TEMPERATURE / 2)
    assert sample_positions(logits, params, 20).token_ids.tolist() == [0] * 20
