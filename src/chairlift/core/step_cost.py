"""What the steps of this engine cost, learned from those it has run.

A step's time follows a :class:`~chairlift.core.cost_model.CostModel`. Its coefficients are fitted
to recent steps of every kind: steps are sorted by how many tokens they have and whether they only
decode, and of each kind the last few dozen count. So an hour of decoding does not make forgotten
what a prompt costs. On top of that comes a level, the ratio of measured to predicted seconds of
the last steps of any kind: it follows a machine that changes its speed. How far steps stray from
what is foretold is followed, too (``spread``).

Models with several knees (:data:`KNEES`) are fitted side by side, and the one whose error over
those steps is least is used. What the steps say is kept as sums of products, from which the error
of any coefficients follows, so that no step has to be looked at twice.

An observed step costs some ten microseconds, a refit (every eighth step) some 200. The outcome
depends on the records alone.
"""

from __future__ import annotations

import dataclasses
from operator import mul
from typing import NamedTuple

from chairlift.core.cost_model import CostModel
from chairlift.core.step_size import StepSize

MIN_STEPS = 8
"""Steps after which there is a model: as many as there are between two fits."""

_KEEP = 1.0 - 1.0 / 24.0  # of a kind's records, with each new one
_LEVEL_GAIN = 0.1
_MAX_DISTURBANCE = 2.0
"""A step that took longer than so many times what was foretold counts as having taken so long."""

_LEAST_S = 1e-6
"""A step that is foretold to take no longer has in it only what has cost nothing so far."""

_SPREAD_GAIN, _MAX_SPREAD = 0.02, 1.5

KNEES = (0, 32, 64)
"""Tokens of a step above which each costs more, in the models that are tried; 0: none."""

_MIN_GAIN = 0.6
"""A knee is used where the squared error is at most so much of what it is without."""

_PULL = 1e-3
"""How much coefficients are drawn to those before: of what the records say of each."""

_SWEEPS, _FIRST_SWEEPS = 3, 100

_LINEAR = (0, 1, 2, 3, 4)  # the columns of a model without a knee; each knee has one more
_COLUMNS = (_LINEAR, *((*_LINEAR, len(_LINEAR) + number) for number in range(len(KNEES) - 1)))
_TARGET = len(_LINEAR) + len(KNEES) - 1  # the last column: what was measured
_PAIRS = tuple((i, j) for i in range(_TARGET + 1) for j in range(i, _TARGET + 1))


class _Kind:
    """Sums over the last steps of one kind, older ones fading: products of their columns."""

    def __init__(self) -> None:
        self.products = [0.0] * len(_PAIRS)

    def add(self, row: tuple[float, ...]) -> None:
        self.products = [
            _KEEP * old + row[i] * row[j] for old, (i, j) in zip(self.products, _PAIRS, strict=True)
        ]


class _Candidate(NamedTuple):
    """Coefficients of a model with one of the knees, and their squared error over all kinds."""

    coefficients: list[float]
    error: float

    def model(self, knee: int) -> CostModel:
        """As a cost model."""
        model = CostModel(*self.coefficients)
        return dataclasses.replace(model, knee_tokens=knee if model.late_token_s > 0.0 else 0)


class StepCost:
    """Learns what a step costs; one engine's, fed after each of its steps.

    Attributes:
        spread: About one step in a hundred takes longer than so many times what was foretold.
            (Raised by each that does by 99 times as much as it is lowered by each that does not;
            at most 1.5, for steps that take still longer were disturbed.)
    """

    def __init__(self) -> None:
        self.spread = 1.1
        self._kinds: dict[tuple[int, bool], _Kind] = {}
        self._num_steps = 0
        self._candidates = [_Candidate([0.0] * len(columns), 0.0) for columns in _COLUMNS]
        self._model: CostModel | None = None
        self._level = 1.0

    def observe(self, size: StepSize, seconds: float) -> None:
        """Take in a step that was run, and the seconds it took; empty and timeless ones are not."""
        if size.num_tokens == 0 or not seconds > 0.0:
            return
        scale = seconds
        unscaled_s = 0.0 if self._model is None else self._model.seconds(size)
        if unscaled_s > _LEAST_S:
            scale = unscaled_s
            foretold_s = self._level * scale
            self._follow_spread(seconds > self.spread * foretold_s)
            seconds = min(seconds, _MAX_DISTURBANCE * foretold_s)
            self._level += _LEVEL_GAIN * (seconds / scale - self._level)
        key = (size.num_tokens.bit_length(), size.num_head_rows == size.num_tokens)
        late = [max(0, size.num_tokens - knee) for knee in KNEES[1:]]
        row = tuple(value / scale for value in (1, *size, *late, seconds))
        self._kinds.setdefault(key, _Kind()).add(row)
        self._num_steps += 1
        if self._num_steps % MIN_STEPS == 0:
            self._refit(size)

    def model(self) -> CostModel | None:
        """The model of this moment; ``None`` before ``MIN_STEPS`` steps."""
        if self._model is None:
            return None
        return self._model.scaled(self._level)

    def predict(self, size: StepSize) -> float | None:
        """Seconds that a step would take now; ``None`` before ``MIN_STEPS`` steps."""
        return None if self._model is None else self._level * self._model.seconds(size)

    def _follow_spread(self, is_exceeded: bool) -> None:
        change = _SPREAD_GAIN * (0.99 if is_exceeded else -0.01)
        self.spread = min(max(self.spread + change, 1.0), _MAX_SPREAD)

    def _refit(self, last: StepSize) -> None:
        before = self._model
        products = _sums(list(self._kinds.values()))
        is_new = self._num_steps <= 8 * MIN_STEPS
        fit = _fit_anew if is_new else _fit_further
        self._candidates = [
            fit(_Equations(products, columns), candidate.coefficients)
            for columns, candidate in zip(_COLUMNS, self._candidates, strict=True)
        ]
        found = self._best()
        if not any(found.linear):
            return
        self._model = found
        if before is not None:  # what is foretold of steps like the last does not jump
            after_s = found.seconds(last)
            self._level *= before.seconds(last) / after_s if after_s > 0.0 else 1.0

    def _best(self) -> CostModel:
        """The model without a knee, unless one with a knee is clearly better."""
        plain = self._candidates[0]
        best = min(range(len(KNEES)), key=lambda number: self._candidates[number].error)
        if self._candidates[best].error > _MIN_GAIN * plain.error:
            best = 0
        return self._candidates[best].model(KNEES[best])


def _sums(kinds: list[_Kind]) -> list[list[float]]:
    """Products of every two columns, summed over all kinds, as a symmetric matrix."""
    products = [[0.0] * (_TARGET + 1) for _ in range(_TARGET + 1)]
    sums = map(sum, zip(*(kind.products for kind in kinds), strict=True))
    for (i, j), value in zip(_PAIRS, sums, strict=True):
        products[i][j] = products[j][i] = value
    return products


class _Equations:
    """The normal equations of a fit: the least squared error of coefficients that are at least 0.

    Args:
        products: Of every two columns.
        columns: Those with coefficients.
    """

    def __init__(self, products: list[list[float]], columns: tuple[int, ...]) -> None:
        self.rows = [[products[i][j] for j in columns] for i in columns]
        self.targets = [products[i][_TARGET] for i in columns]
        self._square = products[_TARGET][_TARGET]

    def sweep(self, found: list[float], times: int) -> None:
        """Set one coefficient after the other to its best value given the others."""
        for _ in range(times):
            for index, row in enumerate(self.rows):
                if row[index] > 0.0:
                    rest = self.targets[index] - sum(map(mul, row, found))
                    found[index] = max(0.0, found[index] + rest / row[index])

    def candidate(self, found: list[float]) -> _Candidate:
        """Coefficients with their squared error: |A x - b|^2 = x (A'A x - 2 A'b) + b'b."""
        pairs = zip(self.rows, self.targets, strict=True)
        inner = (sum(map(mul, row, found)) - 2.0 * target for row, target in pairs)
        return _Candidate(found, max(0.0, sum(map(mul, found, inner)) + self._square))


def _fit_anew(equations: _Equations, start: list[float]) -> _Candidate:
    """Fit by coordinates alone.

    Where the records do not tell two apart (while all only decode, tokens from sequences), the
    first of them counts, or their ratio stays as in ``start``.
    """
    found = list(start)
    equations.sweep(found, _FIRST_SWEEPS)
    return equations.candidate(found)


def _fit_further(equations: _Equations, start: list[float]) -> _Candidate:
    """Solve for the coefficients that were above 0, without any that come out negative.

    Some sweeps then bring in what was left out for nothing. Where the records do not tell two
    apart, they stay as close to ``start`` as they can.
    """
    rows = equations.rows
    left = [index for index, value in enumerate(start) if value > 0.0 and rows[index][index] > 0.0]
    found = [0.0] * len(start)
    while left:
        values = _solve(rows, equations.targets, start, left)
        if min(values) >= 0.0:
            for index, value in zip(left, values, strict=True):
                found[index] = value
            break
        left = [index for index, value in zip(left, values, strict=True) if value >= 0.0]
    equations.sweep(found, _SWEEPS)
    return equations.candidate(found)


def _solve(
    rows: list[list[float]], targets: list[float], start: list[float], chosen: list[int]
) -> list[float]:
    """Solve the normal equations of some coefficients, drawn a little to where they were.

    By Gaussian elimination without exchanges: with what draws them, the matrix is positive
    definite.
    """
    matrix = []
    for i in chosen:
        pull = _PULL * rows[i][i]
        row = [rows[i][j] + (pull if i == j else 0.0) for j in chosen]
        matrix.append([*row, targets[i] + pull * start[i]])
    for k, pivot in enumerate(matrix):
        for row in matrix[k + 1 :]:
            factor = row[k] / pivot[k]
            row[k:] = [a - factor * b for a, b in zip(row[k:], pivot[k:], strict=True)]
    values = [0.0] * len(chosen)
    for k in reversed(range(len(chosen))):
        row = matrix[k]
        values[k] = (row[-1] - sum(map(mul, row[k + 1 : -1], values[k + 1 :]))) / row[k]
    return values
