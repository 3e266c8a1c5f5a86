"""Who sits in which slot at which step, under each batching mode, as the Scheduler decides it.

Prompts have one token, so that a request with n output tokens takes part in exactly n steps, and a
schedule can be checked by hand.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.config import BatchingMode, EngineLimits, SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput
from chairlift.errors import ConfigError
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams

MODES: tuple[BatchingMode, ...] = ("static", "dynamic", "continuous")
MAX_TOKENS = 1_000_000
"""Most tokens of all requests of a timeline: so many rows are worked through one by one."""


@dataclass(frozen=True, slots=True)
class TimelineSpec:
    """What is to be drawn.

    Attributes:
        lengths: Output tokens of each request, each at least 1.
        arrivals: The step after which each request has arrived, 0 for before the first; as many
            as ``lengths``.
        max_num_seqs: Slots.
        window_steps: How many steps dynamic batching waits for a batch to fill.
    """

    lengths: tuple[int, ...]
    arrivals: tuple[int, ...]
    max_num_seqs: int
    window_steps: int = 2

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths must be numbers of at least 1, got {_shown(self.lengths)}")
        if len(self.arrivals) != len(self.lengths) or min(self.arrivals) < 0:
            raise ConfigError(
                f"arrivals must be one step of at least 0 for each of the {len(self.lengths)} "
                f"lengths, got {_shown(self.arrivals)}"
            )
        if self.max_num_seqs < 1:
            raise ConfigError(f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        if self.window_steps < 0:
            raise ConfigError(f"window must be at least 0 steps, got {self.window_steps}")
        if sum(self.lengths) > MAX_TOKENS or max(self.arrivals) > MAX_TOKENS:
            raise ConfigError(
                f"a timeline has at most {MAX_TOKENS} tokens and steps, got "
                f"{max(sum(self.lengths), *self.arrivals)}; chairlift simulate takes more"
            )


@dataclass(frozen=True, slots=True)
class Stay:
    """One request's time in a slot. Steps count from 1.

    Attributes:
        slot: From 0.
        first_step: In which it got its first token.
        last_step: In which it got its last.
        returned_at: The step with whose end its tokens were handed out. Later than ``last_step``
            where a batch returns as a whole; the slot stays taken until then.
    """

    name: str
    arrival_step: int
    num_tokens: int
    slot: int
    first_step: int
    last_step: int
    returned_at: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole run under one mode.

    Attributes:
        running: Requests that got a token, for each step; 0 where all waited.
        stays: In the order of the lengths given.
    """

    mode: BatchingMode
    max_num_seqs: int
    running: tuple[int, ...]
    stays: tuple[Stay, ...]

    @property
    def num_steps(self) -> int:
        """Steps until all had returned, those in which all waited included."""
        return len(self.running)

    @property
    def num_tokens(self) -> int:
        """Tokens that came out."""
        return sum(self.running)

    @property
    def num_slot_steps(self) -> int:
        """Tokens that could have come out."""
        return self.max_num_seqs * self.num_steps

    @property
    def utilisation(self) -> float:
        """Share of the slots that gave a token, over all steps."""
        return self.num_tokens / self.num_slot_steps

    @property
    def mean_return_step(self) -> float:
        """Mean over the requests of the steps from arrival to return."""
        waits = [stay.returned_at - stay.arrival_step for stay in self.stays]
        return sum(waits) / len(waits)


def request_names(count: int) -> list[str]:
    """A, B, ... Z, A2, B2, ..."""
    letters = string.ascii_uppercase
    return [
        letters[i % len(letters)] + (str(i // len(letters) + 1) if i >= len(letters) else "")
        for i in range(count)
    ]


def run_timeline(spec: TimelineSpec, mode: BatchingMode) -> Timeline:
    """Let the Scheduler run the requests, one step per time unit."""
    run = _Run(spec, mode)
    while run.has_work:
        run.step()
    return run.timeline()


class _Run:
    """A scheduler in use, and what has been seen of it."""

    def __init__(self, spec: TimelineSpec, mode: BatchingMode) -> None:
        self._spec, self._mode = spec, mode
        self._names = request_names(len(spec.lengths))
        self._scheduler = _scheduler(spec, mode)
        arrival_order = sorted(range(len(spec.lengths)), key=lambda i: spec.arrivals[i])
        self._coming = list(reversed(arrival_order))
        self._running: list[int] = []
        self._seats: list[str | None] = [None] * spec.max_num_seqs
        self._slots: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._returned: dict[str, int] = {}

    @property
    def has_work(self) -> bool:
        return len(self._returned) < len(self._names)

    def step(self) -> None:
        """Let arrive who has to, plan, and give every row its token."""
        past = len(self._running)
        while self._coming and self._spec.arrivals[self._coming[-1]] <= past:
            self._scheduler.add_request(self._request(self._coming.pop()))
        plan = self._scheduler.schedule(float(past))
        names = [row.request_id for row in plan.scheduled]
        self._running.append(len(names))
        for name in names:
            self._sit_down(name)
            self._last[name] = past + 1
        result = ModelRunnerOutput(dict.fromkeys(names, (0,)))
        for output in self._scheduler.update(plan, result, float(past + 1)):
            if output.finish_reason is not None:
                self._returned[output.request_id] = past + 1
                self._seats[self._slots[output.request_id]] = None

    def _sit_down(self, name: str) -> None:
        if name not in self._slots:
            slot = self._seats.index(None)
            self._seats[slot] = name
            self._slots[name] = slot
            self._first[name] = len(self._running)

    def _request(self, index: int) -> CoreRequest:
        params = SamplingParams(max_tokens=self._spec.lengths[index], ignore_eos=True)
        arrival_s = float(self._spec.arrivals[index])
        return CoreRequest(self._names[index], (0,), params, arrival_s, ())

    def timeline(self) -> Timeline:
        stays = (
            Stay(
                name,
                self._spec.arrivals[i],
                self._spec.lengths[i],
                self._slots[name],
                self._first[name],
                self._last[name],
                self._returned[name],
            )
            for i, name in enumerate(self._names)
        )
        return Timeline(self._mode, self._spec.max_num_seqs, tuple(self._running), tuple(stays))


def _scheduler(spec: TimelineSpec, mode: BatchingMode) -> Scheduler:
    """A scheduler whose only limit is the number of slots."""
    longest = max(spec.lengths) + 1
    num_slots = min(spec.max_num_seqs, len(spec.lengths))
    config = SchedulerConfig(
        max_num_seqs=spec.max_num_seqs,
        max_num_batched_tokens=spec.max_num_seqs,
        max_num_waiting=len(spec.lengths),
        batching=mode,
        batch_window_s=float(spec.window_steps),
    )
    limits = EngineLimits(
        vocab_size=1,
        max_model_len=longest,
        block_size=longest,
        # One block holds a whole request; the reserve kept at admission must never matter.
        num_kv_blocks=2 * num_slots + 2,
        max_num_waiting=len(spec.lengths),
    )
    return Scheduler(config, limits, enable_prefix_caching=False)


def _shown(numbers: Sequence[int]) -> str:
    text = ",".join(map(str, numbers[:8])) + (",..." if len(numbers) > 8 else "")
    return text or "none"
