"""Reads what an engine logged about its steps (``--step-log``)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from chairlift.core.cost_model import StepRecord
from chairlift.core.step_size import StepSize
from chairlift.errors import ConfigError

MAX_GAP_S = 0.005
"""Between two steps of a busy engine there are fractions of a millisecond."""


def read_step_log(path: Path, first: int = 0, last: int | None = None) -> list[StepRecord]:
    """Read a log of steps, or lines ``first`` (from 0) up to and without ``last`` of it.

    The time of a step is that to the start of the next one, if that follows at once: handing
    results on is part of what a step costs. Before a pause it is the step's own.

    Raises:
        ConfigError: The file is something else; the message names the line.
        OSError: It cannot be opened.
    """
    with path.open(encoding="utf-8") as file:
        lines = islice(enumerate(file, start=1), first, last)
        steps = [_parse(path, number, line) for number, line in lines]
    return list(_records(steps))


def _parse(path: Path, number: int, line: str) -> tuple[float, float, StepSize]:
    try:
        fields: dict[str, Any] = json.loads(line)
        started_s, seconds = float(fields.pop("started_s")), float(fields.pop("seconds"))
        size = StepSize(**{name: fields[name] for name in StepSize._fields})
        return started_s, seconds, size
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} line {number} is no step: {error}") from None


def _records(steps: list[tuple[float, float, StepSize]]) -> Iterable[StepRecord]:
    for (started_s, seconds, size), (next_s, _, _) in pairwise(steps):
        is_followed = next_s - started_s - seconds < MAX_GAP_S
        yield StepRecord(size, next_s - started_s if is_followed else seconds)
    if steps:
        yield StepRecord(steps[-1][2], steps[-1][1])
