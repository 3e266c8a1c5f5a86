"""When waiting requests may board: at every step, or only as a new batch.

Continuous batching is what Chairlift is for. Static and dynamic batching exist to be compared
with, on the same scheduler, runner and kernels.
"""

from __future__ import annotations

from typing import Protocol

from chairlift.config import SchedulerConfig
from chairlift.outputs import StepOutput


class Batching(Protocol):
    """Says how many waiting requests may board, and when their outputs go out."""

    def num_boarding(
        self, now_s: float, num_running: int, num_waiting: int, oldest_wait_s: float
    ) -> int:
        """How many waiting requests may start in this step; asked once a step.

        Args:
            now_s: On the clock of the arrival times.
            num_running: Requests running or preempted.
            num_waiting: Requests that have never run.
            oldest_wait_s: How long the first of those has waited, in seconds.
        """
        ...

    def boarded(self, num_requests: int) -> None:
        """Told how many did start."""
        ...

    def release(self, outputs: list[StepOutput], num_running: int) -> list[StepOutput]:
        """Outputs that go out now, given those of this step and what still runs."""
        ...

    def wait_s(self, num_waiting: int, oldest_wait_s: float) -> float | None:
        """Seconds until waiting alone lets somebody board; ``None`` if it never does."""
        ...


class ContinuousBatching:
    """Anyone may board at any step, and tokens go out as they come (Orca, Yu et al., OSDI '22)."""

    def num_boarding(
        self, now_s: float, num_running: int, num_waiting: int, oldest_wait_s: float
    ) -> int:
        """All that wait."""
        return num_waiting

    def boarded(self, num_requests: int) -> None:
        """Nothing to remember."""

    def release(self, outputs: list[StepOutput], num_running: int) -> list[StepOutput]:
        """All at once."""
        return outputs

    def wait_s(self, num_waiting: int, oldest_wait_s: float) -> float | None:
        """Nobody waits for time to pass."""
        return 0.0 if num_waiting else None


class DelayedBatching(ContinuousBatching):
    """Continuous batching in which new requests wait for company (vLLM V0's delay factor).

    Somebody may start once the first in the line has waited ``factor`` times as long as the last
    step took in which somebody started, or when nothing runs.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._now_s = 0.0
        self._prompt_started_s: float | None = None
        self._last_prompt_s = 0.0

    def num_boarding(
        self, now_s: float, num_running: int, num_waiting: int, oldest_wait_s: float
    ) -> int:
        """All that wait, or none yet."""
        if self._prompt_started_s is not None:
            self._last_prompt_s = now_s - self._prompt_started_s
        self._now_s, self._prompt_started_s = now_s, None
        has_waited = oldest_wait_s > self._factor * self._last_prompt_s
        return num_waiting if has_waited or num_running == 0 else 0

    def boarded(self, num_requests: int) -> None:
        """The step takes as long as it is to the next one."""
        self._prompt_started_s = self._now_s if num_requests else None


class StaticBatching:
    """A batch is formed when the one before has wholly ended, and returns as a whole.

    With a window above 0 this is dynamic batching: the first request waits up to ``window_s`` for
    company before the batch leaves, unless it is full.
    """

    def __init__(self, max_num_seqs: int, window_s: float) -> None:
        self._max_num_seqs = max_num_seqs
        self._window_s = window_s
        self._num_still_boarding = 0
        self._held: dict[str, StepOutput] = {}

    def num_boarding(
        self, now_s: float, num_running: int, num_waiting: int, oldest_wait_s: float
    ) -> int:
        """The members of the batch that have not started yet; none joins a batch that left."""
        if num_running == 0:
            is_full = num_waiting >= self._max_num_seqs
            leaves = num_waiting > 0 and (is_full or oldest_wait_s >= self._window_s)
            self._num_still_boarding = min(self._max_num_seqs, num_waiting) if leaves else 0
        return min(self._num_still_boarding, num_waiting)

    def boarded(self, num_requests: int) -> None:
        """Members that started are no longer awaited."""
        self._num_still_boarding -= num_requests

    def release(self, outputs: list[StepOutput], num_running: int) -> list[StepOutput]:
        """Nothing before the last member has ended, then everything."""
        for output in outputs:
            held = self._held.get(output.request_id)
            self._held[output.request_id] = output if held is None else _joined(held, output)
        if num_running > 0:
            return []
        released = list(self._held.values())
        self._held.clear()
        return released

    def wait_s(self, num_waiting: int, oldest_wait_s: float) -> float | None:
        """What is left of the window while somebody waits for company."""
        return max(0.0, self._window_s - oldest_wait_s) if num_waiting else None


def _joined(first: StepOutput, second: StepOutput) -> StepOutput:
    return second._replace(
        token_ids=first.token_ids + second.token_ids,
        logprobs=first.logprobs + second.logprobs,
        prompt_logprobs=first.prompt_logprobs + second.prompt_logprobs,
        num_cached_tokens=max(first.num_cached_tokens, second.num_cached_tokens),
        timings=second.timings or first.timings,
    )


def make_batching(config: SchedulerConfig) -> Batching:
    """The batching mode that the configuration names."""
    if config.batching == "static":
        return StaticBatching(config.max_num_seqs, window_s=0.0)
    if config.batching == "dynamic":
        return StaticBatching(config.max_num_seqs, window_s=config.batch_window_s)
    if config.scheduler_delay_factor > 0.0:
        return DelayedBatching(config.scheduler_delay_factor)
    return ContinuousBatching()
