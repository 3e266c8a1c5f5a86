"""Steps of several sizes before the first request, so that it is known what steps cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.runner_protocol import ModelRunner
from chairlift.core.scheduler_output import NewRequest, ScheduledRequest, SchedulerOutput
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import step_size
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams

_PROMPT_TOKENS = (16, 64, 128, 256)
_NUM_DECODES = (1, 4, 16, 48)


def needs_costs(config: SchedulerConfig) -> bool:
    """Whether decisions are to be taken by what steps cost, from the first on."""
    return config.target_itl_s > 0.0 or config.target_ttft_s > 0.0


def rehearse_costs(
    runner: ModelRunner,
    cost: StepCost,
    config: SchedulerConfig,
    limits: EngineLimits,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Compute prompts and batches of several sizes, and let ``cost`` learn from their times.

    As many tokens as 700 are computed. The KV that is written is never read by a request.

    Args:
        runner: Knows no request, before and after.
    """
    for plan in _plans(config, limits):
        started_s = clock()
        runner.execute(plan)
        cost.observe(step_size(plan), clock() - started_s)


def learn_costs(
    cost: StepCost, model: CostModel, config: SchedulerConfig, limits: EngineLimits
) -> None:
    """Let ``cost`` learn from the same steps, each taking as long as ``model`` says."""
    for plan in _plans(config, limits):
        size = step_size(plan)
        cost.observe(size, model.seconds(size))


def _plans(config: SchedulerConfig, limits: EngineLimits) -> Iterator[SchedulerOutput]:
    """Plans to be run in order; the last one computes nothing and ends what the others began."""
    before: list[str] = []
    for num_tokens in _PROMPT_TOKENS:
        if num_tokens < min(limits.max_total_tokens, config.max_num_batched_tokens):
            blocks = tuple(range(-(-num_tokens // limits.block_size)))
            plan = _first_step([f"prompt-{num_tokens}"], num_tokens, [blocks], before)
            before = [row.request_id for row in plan.scheduled]
            yield plan
    for num_seqs in _NUM_DECODES:
        if num_seqs <= min(config.max_num_seqs, limits.num_kv_blocks):
            ids = [f"decode-{num_seqs}-{number}" for number in range(num_seqs)]
            yield _first_step(ids, 1, [(number,) for number in range(num_seqs)], before)
            before = ids
            for position in range(1, min(limits.block_size, 3)):
                rows = [ScheduledRequest(name, position, 1, (), False, True) for name in ids]
                yield SchedulerOutput(0, rows)
    yield SchedulerOutput(0, [], finished_request_ids=before)


def _first_step(
    ids: list[str], num_tokens: int, blocks: list[tuple[int, ...]], before: list[str]
) -> SchedulerOutput:
    """A step in which new requests have their prompts computed, those before being forgotten."""
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    requests = [CoreRequest(name, (0,) * num_tokens, params, 0.0, ()) for name in ids]
    return SchedulerOutput(
        0,
        [
            ScheduledRequest(name, 0, num_tokens, own, True, True)
            for name, own in zip(ids, blocks, strict=True)
        ],
        new_requests=[NewRequest(request) for request in requests],
        finished_request_ids=before,
    )
