"""Cost models fitted to records of steps, ready-made, and in files.

The form of a model is in :mod:`chairlift.core.cost_model`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chairlift.core.cost_model import CostModel, StepRecord
from chairlift.errors import ConfigError

PRESETS = {
    # benchmarks/throughput.py, 2 cores with AMX, bfloat16, 2026-11-29 (later versions are quicker):
    # decode steps of 1, 8, 32 and 64 requests of 128 tokens took 13.9, 17.9, 36.4 and 61.7 ms, of
    # which the head 0.05 ms a row; prompts of 1,024 tokens were read at 2,043 tokens/s, by 512.
    "smollm2-135m-cpu": CostModel(0.0131, 0.00036, 2.0e-7, 0.00032, 0.00005),
}
"""So that the commands work at once; for figures that matter, calibrate on the machine meant."""


MAX_DISTURBANCE, REWEIGHTINGS = 10.0, 4
KNEES = (0, 16, 32, 48, 64, 96, 128)
"""Tried, and the best taken; 0: none."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model and how well it fits.

    Attributes:
        num_steps: Records it was fitted to.
        mean_error: Mean absolute error of a step over the mean step.
        total_error: Predicted over measured sum of all steps, minus 1.
        relative_error: Root of the mean squared error of a step relative to what is predicted.
    """

    model: CostModel
    num_steps: int
    mean_error: float
    total_error: float
    relative_error: float


def fit_cost_model(records: Sequence[StepRecord]) -> Fit:
    """Find the coefficients with the least squared relative error, none of them negative.

    Relative to what is predicted, because a run has short and long steps and both must come out
    right. (Relative to what was measured would say too little: of two steps of equal size the
    quicker one would count more.) Steps that took over ten times what a first fit says were
    disturbed by something else on the machine and are left out.

    Raises:
        ConfigError: There are fewer than 10 records.
    """
    if len(records) < 10:
        raise ConfigError(f"a cost model needs at least 10 steps to fit, got {len(records)}")
    fits = [_fit_with_knee(records, knee) for knee in KNEES]
    return min(fits, key=lambda fit: fit.relative_error)


def _fit_with_knee(records: Sequence[StepRecord], knee: int) -> Fit:
    sizes = np.array(
        [(1, *r.size, max(0, r.size.num_tokens - knee) if knee else 0) for r in records],
        np.float64,
    )
    seconds = np.array([record.seconds for record in records])
    coefficients = _fit(sizes, seconds, seconds)
    kept = seconds <= MAX_DISTURBANCE * (sizes @ coefficients)
    sizes, seconds = sizes[kept], seconds[kept]
    for _ in range(REWEIGHTINGS):
        coefficients = _fit(sizes, seconds, sizes @ coefficients)
    predicted = sizes @ coefficients
    values: list[float] = coefficients.tolist()
    has_knee = values[-1] > 0.0
    return Fit(
        replace(CostModel(*values), knee_tokens=knee if has_knee else 0),
        len(seconds),
        float(np.abs(predicted - seconds).mean() / seconds.mean()),
        float(predicted.sum() / seconds.sum() - 1.0),
        float(np.sqrt(((seconds / predicted - 1.0) ** 2).mean())),
    )


def _fit(
    sizes: NDArray[np.float64], seconds: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Coefficients with the least squared error relative to ``scale``."""
    return non_negative_least_squares(sizes / scale[:, None], seconds / scale)


def non_negative_least_squares(
    matrix: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Minimise ``|matrix @ x - target|`` over x >= 0, for a handful of columns.

    The columns that are above 0 in the best x are fitted by plain least squares; so trying every
    set of columns and keeping the best that has no negative coefficient finds it.

    Args:
        matrix: [num_rows, num_columns] float64; at most a dozen columns.
        target: [num_rows] float64.

    Returns:
        [num_columns] float64.
    """
    num_columns = matrix.shape[1]
    scale = np.sqrt((matrix * matrix).sum(0))
    scale[scale == 0] = 1.0
    # |Q R x - target| is least where |R x - Q' target| is, and R has a handful of rows.
    basis, triangle = np.linalg.qr(matrix / scale)
    rotated = basis.T @ target
    best, best_error = np.zeros(num_columns), float(rotated @ rotated)
    for count in range(1, num_columns + 1):
        for columns in map(list, combinations(range(num_columns), count)):
            solution = np.linalg.lstsq(triangle[:, columns], rotated, rcond=None)[0]
            difference = triangle[:, columns] @ solution - rotated
            error = float(difference @ difference)
            if (solution >= 0).all() and error < best_error:
                best, best_error = np.zeros(num_columns), error
                best[columns] = solution
    best /= scale
    return best


def save_cost_model(path: Path, model: CostModel, about: dict[str, Any]) -> None:
    """Write a model as JSON, with what is to be known about where it comes from."""
    text = json.dumps({"coefficients_s": dataclasses.asdict(model), "about": about}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def load_cost_model(name: str) -> CostModel:
    """Take a preset by its name, or read a file that :func:`save_cost_model` wrote.

    Raises:
        ConfigError: There is neither, or the file is something else.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.exists():
        presets = ", ".join(PRESETS)
        raise ConfigError(f"cost_model must be {presets} or a file that is there, got {name!r}")
    try:
        return CostModel(**json.loads(path.read_text(encoding="utf-8"))["coefficients_s"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{name} is no cost model: {type(error).__name__}: {error}") from None
