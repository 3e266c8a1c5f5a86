"""What the steps of this engine cost, learned from those it has run.

A step's time follows a :class:`~chairlift.core.cost_model.CostModel`. Its coefficients are fitted
to recent steps of every kind: steps are sorted by how many tokens they have and whether they only
decode, and of each kind the last few dozen count. So an hour of decoding does not make forgotten
what a prompt costs. On top of that comes a level, the ratio of measured to predicted seconds of
the last steps of any kind: it follows a machine that changes its speed. How far steps stray from
what is foretold is followed, too (``spread``).

An observed step costs some ten microseconds, a refit (every eighth step) some fifty. The outcome
depends on the records alone.
"""

from __future__ import annotations

from operator import mul

from chairlift.core.cost_model import CostModel
from chairlift.core.step_size import StepSize

MIN_STEPS = 8
"""Steps after which there is a model: as many as there are between two fits."""

_KEEP = 1.0 - 1.0 / 24.0  # of a kind's records, with each new one
_LEVEL_GAIN = 0.1
_MAX_DISTURBANCE = 3.0
"""A step that took longer than so many times what was foretold counts as having taken so long."""

_SPREAD_GAIN, _MAX_SPREAD = 0.02, 1.5

_SWEEPS, _FIRST_SWEEPS = 12, 200
_NUM_COEFFICIENTS = 5
_PAIRS = tuple((i, j) for i in range(_NUM_COEFFICIENTS) for j in range(i, _NUM_COEFFICIENTS))


class _Kind:
    """Sums over the last steps of one kind, older ones fading: products of their columns."""

    def __init__(self) -> None:
        self.products = [0.0] * len(_PAIRS)
        self.targets = [0.0] * _NUM_COEFFICIENTS

    def add(self, row: tuple[float, ...], target: float) -> None:
        self.products = [
            _KEEP * old + row[i] * row[j] for old, (i, j) in zip(self.products, _PAIRS, strict=True)
        ]
        self.targets = [
            _KEEP * old + value * target for old, value in zip(self.targets, row, strict=True)
        ]


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
        self._model: CostModel | None = None
        self._level = 1.0

    def observe(self, size: StepSize, seconds: float) -> None:
        """Take in a step that was run, and the seconds it took; empty and timeless ones are not."""
        if size.num_tokens == 0 or not seconds > 0.0:
            return
        scale = seconds
        unscaled_s = 0.0 if self._model is None else self._model.seconds(size)
        if unscaled_s > 0.0:
            scale = unscaled_s
            foretold_s = self._level * scale
            self._follow_spread(seconds > self.spread * foretold_s)
            seconds = min(seconds, _MAX_DISTURBANCE * foretold_s)
            self._level += _LEVEL_GAIN * (seconds / scale - self._level)
        key = (size.num_tokens.bit_length(), size.num_head_rows == size.num_tokens)
        row = tuple(value / scale for value in (1, *size))
        self._kinds.setdefault(key, _Kind()).add(row, seconds / scale)
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
        start = list(before.linear) if before else [0.0] * _NUM_COEFFICIENTS
        sweeps = _SWEEPS if self._num_steps > 8 * MIN_STEPS else _FIRST_SWEEPS
        found = _least_squares(list(self._kinds.values()), start, sweeps)
        if not any(found):
            return
        self._model = CostModel(*found)
        if before is not None:  # what is foretold of steps like the last does not jump
            after_s = self._model.seconds(last)
            self._level *= before.seconds(last) / after_s if after_s > 0.0 else 1.0


def _least_squares(kinds: list[_Kind], start: list[float], sweeps: int) -> list[float]:
    """Coefficients of at least 0 with the least squared error over all kinds, by coordinates.

    One after the other is set to its best value given the others. Where the records do not tell
    two apart (while all only decode, tokens from sequences), their ratio stays as in ``start``.
    """
    sums = [sum(column) for column in zip(*(kind.products for kind in kinds), strict=True)]
    targets = [sum(column) for column in zip(*(kind.targets for kind in kinds), strict=True)]
    products = [[0.0] * _NUM_COEFFICIENTS for _ in range(_NUM_COEFFICIENTS)]
    for (i, j), value in zip(_PAIRS, sums, strict=True):
        products[i][j] = products[j][i] = value
    found = start
    for _ in range(sweeps):
        for index, row in enumerate(products):
            if row[index] > 0.0:
                rest = targets[index] - sum(map(mul, row, found))
                found[index] = max(0.0, found[index] + rest / row[index])
    return found
