"""A line per step in a file: what was in it and how long it took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.core.step_size import step_size
from chairlift.engine.step_numbers import StepNumbers
from chairlift.errors import ConfigError


class StepLog:
    """Writes JSON lines; made to be an observer of an engine core.

    A line has ``started_s`` on the engine's monotonic clock, ``seconds`` of the whole step, and the
    fields of :class:`~chairlift.core.step_size.StepSize`. With ``numbers`` it also has tokens by
    kind, what requests and KV blocks do after the step, and the seconds of its parts (``parts_s``).
    Lines are complete when they are in the file: it can be read while the engine runs.

    Args:
        path: Written anew.
        clock: Monotonic seconds.
        numbers: Of the engine whose steps these are.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        *,
        numbers: StepNumbers | None = None,
    ) -> None:
        self._path, self._clock, self._numbers = path, clock, numbers
        try:
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"step_log {path} cannot be written: {error.strerror}") from None

    def __call__(self, plan: SchedulerOutput, seconds: float) -> None:
        """Write the line of a step that has just ended."""
        times = {"started_s": round(self._clock() - seconds, 6), "seconds": round(seconds, 6)}
        line: dict[str, Any] = times | step_size(plan)._asdict()
        if self._numbers is not None:
            line |= self._numbers.counts(plan)
            line["parts_s"] = self._numbers.parts_s()
        # Opened for each line: nobody tells the log when the engine ends.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
