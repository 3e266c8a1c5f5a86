"""A trace of the engine's steps in Chrome's trace event format."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.engine.step_numbers import StepNumbers
from chairlift.errors import ConfigError

_US_PER_S = 1e6


class StepTrace:
    """Writes each step with its parts, and how requests and KV blocks were used; an observer.

    The file opens in ui.perfetto.dev and chrome://tracing, also while it grows: the format allows
    its last bracket to be missing.

    Args:
        path: Written anew.
        numbers: Of the engine whose steps these are.
        clock: Monotonic seconds.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(
        self, path: Path, numbers: StepNumbers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._numbers, self._clock = path, numbers, clock
        try:
            path.write_text("[\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"step_trace {path} cannot be written: {error.strerror}") from None

    def __call__(self, plan: SchedulerOutput, seconds: float) -> None:
        """Write the events of a step that has just ended."""
        counts = self._numbers.counts(plan)
        start_us = (self._clock() - seconds) * _US_PER_S
        args = {"step": plan.step, "num_seqs": len(plan.scheduled), **counts}
        events = [_span("step", start_us, seconds, args)]
        part_us = start_us
        for part, part_s in self._numbers.parts_s().items():
            events.append(_span(part, part_us, part_s, {}))
            part_us += part_s * _US_PER_S
        for name, keys in (
            ("tokens", ("num_decode_tokens", "num_prefill_tokens")),
            ("requests", ("num_running", "num_waiting")),
            ("KV blocks", ("num_live_blocks", "num_cached_blocks", "num_free_blocks")),
        ):
            values = {key.split("_")[1]: counts[key] for key in keys}
            events.append({"name": name, "ph": "C", "ts": round(start_us, 1), "args": values})
        self._write(events)

    def _write(self, events: Iterable[dict[str, Any]]) -> None:
        # Opened for each step: nobody tells the trace when the engine ends.
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"pid": 1, "tid": 1} | e) + ",\n" for e in events)


def _span(name: str, start_us: float, seconds: float, args: dict[str, int]) -> dict[str, Any]:
    duration_us = round(seconds * _US_PER_S, 1)
    return {"name": name, "ph": "X", "ts": round(start_us, 1), "dur": duration_us, "args": args}
