"""A workload on an engine core in this process, without HTTP: what the engine itself can do."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from chairlift.engine.engine_core import EngineCore
from chairlift.errors import ConfigError
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, StepOutput
from chairlift.sampling_params import SamplingParams
from chairlift.workload.request_metrics import RequestTimes
from chairlift.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Time:
    """A clock and a way to wait; real ones unless a test has others."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class EngineLoadResult:
    """What came of a run.

    Attributes:
        times: On the engine's clock; a token counts when it is handed out.
        duration_s: From the first arrival to the last token.
    """

    times: RequestTimes
    num_preemptions: int
    duration_s: float


class _Watch:
    """Moments of the requests of a run, by their number."""

    def __init__(self, num_requests: int) -> None:
        self.scheduled_s, self.first_s, self.last_s = (
            np.full(num_requests, math.nan) for _ in range(3)
        )

    def take_in(self, output: StepOutput, now_s: float) -> None:
        """Note what a step gave a request.

        Raises:
            ConfigError: The request failed.
        """
        if output.finish_reason is FinishReason.ERROR:
            raise ConfigError(f"request {output.request_id} failed: {output.error}")
        number = int(output.request_id)
        if output.token_ids and math.isnan(self.first_s[number]):
            self.first_s[number] = now_s
        if output.finish_reason is not None:
            self.last_s[number] = now_s
            if output.timings is not None:
                self.scheduled_s[number] = output.timings.scheduled_s


def run_engine_load(
    core: EngineCore, workload: Workload, vocab_size: int, seed: int = 0, clock: Time | None = None
) -> EngineLoadResult:
    """Run a workload in real time; requests arrive when it says, between two steps.

    Args:
        core: Idle, on the same clock; idle again afterwards.
        vocab_size: Prompts are random ids below it.
        seed: Of the prompts.

    Raises:
        ContextLengthError: A request could never fit.
        ConfigError: A request failed.
    """
    clock = clock or Time()
    watch = _Watch(len(workload))
    num_preempted_before = core.stats().scheduler.num_preemptions_total
    waiting = list(_requests(workload, vocab_size, seed))
    start_s = clock.now_s()
    coming = deque(waiting)
    while coming or core.has_work:
        while coming and start_s + coming[0].arrival_time_s <= clock.now_s():
            core.add_request(_moved(coming.popleft(), start_s))
        idle_s = core.wait_s()
        if idle_s != 0.0:
            next_s = start_s + coming[0].arrival_time_s - clock.now_s() if coming else math.inf
            clock.sleep(max(1e-6, min(next_s, math.inf if idle_s is None else idle_s)))
        if core.has_work:
            for output in core.step():
                watch.take_in(output, clock.now_s())
    preemptions = core.stats().scheduler.num_preemptions_total - num_preempted_before
    arrivals = workload.arrival_s + start_s
    times = RequestTimes(
        arrivals, watch.scheduled_s, watch.first_s, watch.last_s, workload.num_output_tokens
    )
    return EngineLoadResult(times, preemptions, float(watch.last_s.max() - arrivals.min()))


def _requests(workload: Workload, vocab_size: int, seed: int) -> Iterator[CoreRequest]:
    rng = random.Random(seed)
    for number, (arrival_s, num_prompt, num_output) in enumerate(workload.rows()):
        prompt = tuple(rng.randrange(vocab_size) for _ in range(num_prompt))
        params = SamplingParams(max_tokens=num_output, temperature=0.0, ignore_eos=True)
        yield CoreRequest(str(number), prompt, params, arrival_s, ())


def _moved(request: CoreRequest, start_s: float) -> CoreRequest:
    return CoreRequest(
        request.request_id,
        request.prompt_token_ids,
        request.sampling_params,
        start_s + request.arrival_time_s,
        request.eos_token_ids,
    )
