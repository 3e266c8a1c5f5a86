"""The cost model counts what is in a step and finds the coefficients that made its records."""

from __future__ import annotations

from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest

from chairlift.core.cost_model import CostModel, StepRecord
from chairlift.core.scheduler_output import ScheduledRequest, SchedulerOutput
from chairlift.core.step_size import StepSize, context_tokens, step_size
from chairlift.errors import ConfigError
from chairlift.simulate.cost_model import (
    PRESETS,
    fit_cost_model,
    load_cost_model,
    non_negative_least_squares,
    save_cost_model,
)

TRUE = CostModel(0.01, 0.0005, 1e-6, 0.0002, 0.0)
SIZES = [
    StepSize(seqs + prompt, seqs * context + prompt * (prompt + 1) // 2, seqs + (prompt > 0), seqs)
    for seqs, context, prompt in product((1, 4, 16, 64), (50, 500, 3000), (0, 128, 400))
]


def test_a_step_is_counted_row_by_row() -> None:
    rows = [
        ScheduledRequest("decode", 9, 1, (), False, True),
        ScheduledRequest("chunk", 4, 3, (), False, False),
    ]
    assert step_size(SchedulerOutput(0, rows)) == StepSize(4, 10 + 5 + 6 + 7, 2, 1)


def test_context_tokens_are_pairs_of_a_token_and_one_it_attends_to() -> None:
    assert context_tokens(4, 3) == sum(len(range(position + 1)) for position in (4, 5, 6))


def test_seconds_are_the_sum_of_what_each_part_costs() -> None:
    model = CostModel(1.0, 0.1, 0.01, 0.001, 0.0001)
    assert model.seconds(StepSize(2, 3, 4, 5)) == pytest.approx(1.2345)


def test_a_run_of_decodes_takes_what_its_steps_take_to_the_last_bit() -> None:
    model = CostModel(0.0131, 0.00036, 2.0e-7, 0.00032, 0.00005, 0.0001, 5)
    run = list(islice(model.decode_run(7, 1234), 50))
    assert run == [model.seconds(StepSize(7, 1234 + 7 * number, 7, 7)) for number in range(50)]


def test_a_slower_machine_takes_so_many_times_as_long_for_every_step() -> None:
    for size in SIZES:
        assert TRUE.scaled(1.5).seconds(size) == pytest.approx(1.5 * TRUE.seconds(size))


def test_the_fit_finds_the_coefficients_that_made_the_records() -> None:
    fit = fit_cost_model([StepRecord(size, TRUE.seconds(size)) for size in SIZES])
    for size in SIZES:
        assert fit.model.seconds(size) == pytest.approx(TRUE.seconds(size), rel=1e-6)
    assert fit.num_steps == len(SIZES)
    assert fit.mean_error == pytest.approx(0.0, abs=1e-9)


def test_the_fit_finds_the_tokens_that_reading_the_weights_hides() -> None:
    true = CostModel(0.01, 0.0001, 1e-6, 0.0001, 0.0, 0.0002, 48)
    sizes = [StepSize(n, n * 20, min(n, 64), min(n, 64)) for n in (1, 2, 4, 8, 16, 24, 40, 64)]
    sizes += [StepSize(n, n * n // 2, 1, 1) for n in (16, 32, 48, 64, 96, 128, 256, 512)]
    fit = fit_cost_model([StepRecord(size, true.seconds(size)) for size in sizes])
    assert fit.model.knee_tokens == 48
    for size in sizes:
        assert fit.model.seconds(size) == pytest.approx(true.seconds(size), rel=1e-6)
        assert true.scaled(2.0).seconds(size) == pytest.approx(2.0 * true.seconds(size))


def test_noise_moves_the_fit_little_and_disturbed_steps_not_at_all() -> None:
    rng = np.random.default_rng(0)
    records = [
        StepRecord(size, TRUE.seconds(size) * float(rng.normal(1.0, 0.05)))
        for size in SIZES
        for _ in range(10)
    ]
    disturbed = [StepRecord(size, seconds * 20) for size, seconds in records[::40]]
    fit = fit_cost_model(records + disturbed)
    assert fit.num_steps == len(records)
    assert fit.mean_error < 0.06
    for size in SIZES:
        assert fit.model.seconds(size) == pytest.approx(TRUE.seconds(size), rel=0.05)


def test_skewed_noise_does_not_move_the_sum() -> None:
    rng = np.random.default_rng(2)
    records = [
        StepRecord(size, TRUE.seconds(size) * float(rng.lognormal(0.0, 0.5)))
        for size in SIZES
        for _ in range(40)
    ]
    assert fit_cost_model(records).total_error == pytest.approx(0.0, abs=0.02)


def test_no_coefficient_is_negative() -> None:
    records = [StepRecord(size, 1.0 / (1 + size.num_tokens)) for size in SIZES]
    fit_cost_model(records)  # CostModel refuses negative coefficients


def test_non_negative_least_squares_meets_the_conditions_of_the_optimum() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix, target = rng.normal(size=(30, 4)), rng.normal(size=30)
        x = non_negative_least_squares(matrix, target)
        gradient = matrix.T @ (matrix @ x - target)
        # Karush-Kuhn-Tucker: no slope where x is free, none downwards where it is at 0.
        assert (x >= 0).all()
        assert gradient[x > 0] == pytest.approx(0.0, abs=1e-9)
        assert (gradient[x == 0] > -1e-9).all()


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 10 steps to fit, got 1"):
        fit_cost_model([StepRecord(SIZES[0], 1.0)])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_cost_model(tmp_path / "cost.json", TRUE, {"machine": "here"})
    assert load_cost_model(str(tmp_path / "cost.json")) == TRUE


def test_presets_go_by_their_names() -> None:
    assert all(load_cost_model(name) is model for name, model in PRESETS.items())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"coefficients_s": {"speed": 1}}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ConfigError, match=r"other\.json is no cost model"):
        load_cost_model(str(tmp_path / "other.json"))


def test_a_missing_file_and_negative_costs_are_refused() -> None:
    with pytest.raises(ConfigError, match="or a file that is there, got 'gpu'"):
        load_cost_model("gpu")
    with pytest.raises(ConfigError, match="token_s must be at least 0 and finite, got -1"):
        CostModel(0.0, -1)
