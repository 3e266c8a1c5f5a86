"""Runs steps of many sizes on the real engine, so that a cost model can be fitted to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chairlift.config import EngineLimits
from chairlift.core.cost_model import StepRecord
from chairlift.core.scheduler_output import SchedulerOutput
from chairlift.core.step_size import step_size
from chairlift.engine.engine_core import EngineCore
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams

CONTEXTS = (32, 256, 1024)
NUM_OUTPUT_TOKENS = 24
MAX_PROMPT_TOKENS_PER_BATCH = 8192
"""Of all requests of a batch together: reading prompts would otherwise take most of the time."""


class StepRecorder:
    """Keeps a record of every step; made to be an observer of an engine core."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def __call__(self, plan: SchedulerOutput, seconds: float) -> None:
        """Note a step."""
        self.records.append(StepRecord(step_size(plan), seconds))


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are run together: how many, and how long their prompts are."""

    num_requests: int
    num_prompt_tokens: int


def batches(max_num_seqs: int, max_total_tokens: int) -> Iterator[Batch]:
    """Sizes of 1, 2, 4 ... ``max_num_seqs`` requests with short, middle and long contexts."""
    num_requests = 1
    while True:
        for context in CONTEXTS:
            bound = MAX_PROMPT_TOKENS_PER_BATCH // num_requests
            fits = max_total_tokens - NUM_OUTPUT_TOKENS
            yield Batch(num_requests, max(1, min(context, bound, fits)))
        if num_requests == max_num_seqs:
            return
        num_requests = min(2 * num_requests, max_num_seqs)


def calibrate(
    core: EngineCore, limits: EngineLimits, max_num_seqs: int, seed: int = 0
) -> list[StepRecord]:
    """Run batches of many sizes and record their steps, the first batch of all left out.

    Args:
        core: Idle, without prefix cache; idle again afterwards.
    """
    rng = random.Random(seed)
    _run(core, limits, Batch(1, 1), rng)
    recorder = StepRecorder()
    core.observe_steps(recorder)
    for batch in batches(max_num_seqs, limits.max_total_tokens):
        _run(core, limits, batch, rng)
    core.observe_steps(None)
    return recorder.records


def _run(core: EngineCore, limits: EngineLimits, batch: Batch, rng: random.Random) -> None:
    num_output = min(NUM_OUTPUT_TOKENS, limits.max_total_tokens - batch.num_prompt_tokens)
    for number in range(batch.num_requests):
        # Outputs of different lengths, so that steps of every size below occur too.
        length = max(1, num_output - number % max(1, num_output // 2))
        params = SamplingParams(max_tokens=length, temperature=0.0, ignore_eos=True)
        prompt = tuple(rng.randrange(limits.vocab_size) for _ in range(batch.num_prompt_tokens))
        core.add_request(CoreRequest(f"calibrate-{number}", prompt, params, 0.0, ()))
    while core.has_work:
        core.step()
