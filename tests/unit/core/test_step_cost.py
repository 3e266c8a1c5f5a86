"""An engine learns what its steps cost, keeps what it knows, and follows the machine's speed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from chairlift.core.cost_model import CostModel
from chairlift.core.step_cost import MIN_STEPS, StepCost
from chairlift.core.step_size import StepSize

TRUE = CostModel(0.012, 0.0003, 3e-7, 0.0002, 0.00005)
KNEE = CostModel(0.0095, 0.00002, 3e-7, 0.00004, 0.00005, 0.0002, knee_tokens=40)
"""Up to 40 tokens, reading the weights hides most of what computing costs."""
PROMPT = StepSize(480, 480 * 481 // 2, 1, 1)


def _sizes(rng: random.Random, prompt_lengths: tuple[int, ...]) -> Iterator[StepSize]:
    while True:
        seqs, prompt = rng.randint(1, 32), rng.choice(prompt_lengths)
        context = sum(rng.randint(50, 800) for _ in range(seqs))
        num_pairs = prompt * (prompt + 1) // 2
        yield StepSize(seqs + prompt, context + num_pairs, seqs + (prompt > 0), seqs)


def _feed(
    cost: StepCost,
    num_steps: int,
    prompt_lengths: tuple[int, ...],
    *,
    slower: float = 1.0,
    true: CostModel = TRUE,
) -> None:
    rng = random.Random(num_steps)
    for _, size in zip(range(num_steps), _sizes(rng, prompt_lengths), strict=False):
        cost.observe(size, slower * true.seconds(size) * rng.lognormvariate(0.0, 0.05))


def _largest_error(
    cost: StepCost,
    prompt_lengths: tuple[int, ...],
    slower: float = 1.0,
    true: CostModel = TRUE,
) -> float:
    errors = []
    for _, size in zip(range(100), _sizes(random.Random(7), prompt_lengths), strict=False):
        foretold = cost.predict(size)
        assert foretold is not None
        errors.append(abs(foretold / (slower * true.seconds(size)) - 1.0))
    return max(errors)


def test_nothing_is_foretold_before_there_are_a_few_steps() -> None:
    cost = StepCost()
    _feed(cost, MIN_STEPS - 1, (0,))
    assert cost.predict(PROMPT) is None
    assert cost.model() is None
    _feed(cost, 1, (0,))
    assert cost.predict(PROMPT) is not None


def test_a_few_dozen_steps_are_enough_for_steps_of_their_kinds() -> None:
    cost = StepCost()
    _feed(cost, 48, (0, 64, 200, 480))
    assert _largest_error(cost, (0, 64, 200, 480)) < 0.15


def test_long_decoding_does_not_make_forgotten_what_prompts_cost() -> None:
    cost = StepCost()
    _feed(cost, 64, (0, 64, 200, 480))
    _feed(cost, 5000, (0,))
    assert cost.predict(PROMPT) == pytest.approx(TRUE.seconds(PROMPT), rel=0.15)


def test_a_machine_that_turns_slower_is_followed() -> None:
    cost = StepCost()
    _feed(cost, 200, (0,))
    _feed(cost, 40, (0,), slower=2.0)
    assert _largest_error(cost, (0,), slower=2.0) < 0.1


def test_a_single_disturbed_step_changes_little() -> None:
    cost = StepCost()
    _feed(cost, 200, (0, 200))
    cost.observe(PROMPT, 1000 * TRUE.seconds(PROMPT))
    _feed(cost, 16, (0, 200))
    assert _largest_error(cost, (0, 200)) < 0.15


def test_on_a_machine_whose_first_tokens_cost_little_small_and_large_steps_are_foretold() -> None:
    cost, lengths = StepCost(), (0, 16, 64, 200, 480)
    _feed(cost, 200, lengths, true=KNEE)
    model = cost.model()
    assert model is not None
    assert model.knee_tokens in (32, 64)
    assert _largest_error(cost, lengths, true=KNEE) < 0.12
    # Without a knee, steps around it would be foretold to take far longer than they do.
    at_knee = StepSize(40, 40 * 300, 40, 40)
    assert cost.predict(at_knee) == pytest.approx(KNEE.seconds(at_knee), rel=0.1)


def test_a_knee_is_kept_through_long_decoding() -> None:
    cost, lengths = StepCost(), (0, 16, 64, 200, 480)
    _feed(cost, 200, lengths, true=KNEE)
    _feed(cost, 2000, (0,), true=KNEE)
    assert cost.predict(PROMPT) == pytest.approx(KNEE.seconds(PROMPT), rel=0.15)
    assert _largest_error(cost, lengths, true=KNEE) < 0.2


def test_a_machine_without_a_knee_is_given_none() -> None:
    cost = StepCost()
    for number in range(10):
        _feed(cost, 31 + number, (0, 16, 64, 200, 480))
        model = cost.model()
        assert model is not None
        assert model.knee_tokens == 0


def test_the_model_foretells_what_is_foretold() -> None:
    cost = StepCost()
    _feed(cost, 50, (0, 200))
    model = cost.model()
    assert model is not None
    assert model.seconds(PROMPT) == pytest.approx(cost.predict(PROMPT))


def test_the_same_records_make_the_same_model() -> None:
    first, second = StepCost(), StepCost()
    _feed(first, 300, (0, 200))
    _feed(second, 300, (0, 200))
    assert first.model() == second.model()


def test_empty_steps_and_steps_without_time_are_not_counted() -> None:
    cost = StepCost()
    for _ in range(MIN_STEPS):
        cost.observe(StepSize(0, 0, 0, 0), 0.01)
        cost.observe(PROMPT, 0.0)
    assert cost.predict(PROMPT) is None


def test_a_step_without_any_of_what_has_cost_time_so_far_is_taken_in() -> None:
    cost = StepCost()
    for i in range(MIN_STEPS):
        cost.observe(StepSize(1, 1, 1, 1 + i), 1e-3 * (1 + i))
    assert cost.predict(StepSize(1, 1, 1, 0)) == pytest.approx(0.0, abs=1e-6)
    cost.observe(StepSize(1, 1, 1, 0), 2e-3)
    assert cost.predict(StepSize(1, 1, 1, 1)) == pytest.approx(1e-3)
