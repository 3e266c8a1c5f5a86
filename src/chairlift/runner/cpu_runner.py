"""Runs steps on the CPU: plan to flat batch, flat batch to logits, logits to tokens."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

import numpy as np
import numpy.typing as npt

from chairlift.core.scheduler_output import (
    ModelRunnerOutput,
    NewRequest,
    ScheduledRequest,
    SchedulerOutput,
)
from chairlift.errors import KernelInputError, RequestFailedError
from chairlift.kernels.cpu_model import FlatBatch
from chairlift.outputs import TokenLogprob
from chairlift.runner.input_batch import InputBatch, StepInputs
from chairlift.runner.sampler import SampledTokens, Sampler
from chairlift.runner.swap import SwapModel, copy_blocks
from chairlift.runner.times import RunnerTimes

MAX_LOGITS_ROWS = 64
"""Rows of logits computed at a time, so that their buffer stays small however large the step is."""


def logits_bytes(vocab_size: int) -> int:
    """Memory of the buffer for logits."""
    return MAX_LOGITS_ROWS * vocab_size * np.dtype(np.float32).itemsize


class StepModel(SwapModel, Protocol):
    """What the runner needs of a model; :class:`~chairlift.kernels.cpu_model.CpuModel` is one."""

    def forward(self, batch: FlatBatch) -> None:
        """Compute the last hidden states of all tokens, and keep them."""
        ...

    def compute_logits(self, rows: npt.NDArray[np.int32], out: npt.NDArray[np.float32]) -> None:
        """Write the logits of some of those tokens. rows [R] int32, out [R, vocab_size] float32."""
        ...


@dataclass(slots=True)
class _PromptScores:
    """How far the prompt logprobs of a request have been reported.

    Attributes:
        num_top: Alternatives to report at each place.
        next_position: The first position whose next token has not been scored. Computing the
            prompt again after a preemption does not report anything twice.
    """

    num_top: int
    next_position: int = 0


class CpuRunner:
    """A :class:`~chairlift.core.runner_protocol.ModelRunner` over the native kernels.

    Args:
        model: Weights loaded and KV cache allocated.
        sampler: Without requests, of the same vocabulary.
        num_slots: Requests expected at once: ``max_num_seqs``; preempted ones come on top.
        block_size: Tokens per KV block.
    """

    def __init__(
        self, model: StepModel, sampler: Sampler, *, num_slots: int, block_size: int
    ) -> None:
        self.times = RunnerTimes()
        self._model = model
        self._sampler = sampler
        self._batch = InputBatch(num_slots, block_size)
        self._prompt_scores: dict[int, _PromptScores] = {}
        self._logits = np.empty((MAX_LOGITS_ROWS, sampler.vocab_size), np.float32)

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Compute all rows of a plan and sample those that yield.

        Raises:
            KernelInputError: The plan does not go with the model or the KV cache.
        """
        begin_ns = perf_counter_ns()
        copy_blocks(self._model, plan)
        start_ns = perf_counter_ns()
        self.times.swap_ns += start_ns - begin_ns
        for request_id in plan.finished_request_ids:
            self._forget(request_id)
        for new in plan.new_requests:
            self._register(new)
        if plan.is_empty:
            return ModelRunnerOutput({})
        inputs = self._batch.build(plan.scheduled)
        built_ns = perf_counter_ns()
        self._model.forward(inputs.flat)
        self.times.build_ns += built_ns - start_ns
        self.times.forward_ns += perf_counter_ns() - built_ns
        result = ModelRunnerOutput({})
        if self._prompt_scores:
            self._score_prompts(plan.scheduled, inputs, result)
        self._sample(inputs, result)
        return result

    def _register(self, new: NewRequest) -> None:
        request = new.request
        slot = self._batch.register(new)
        try:
            self._sampler.add(
                slot,
                request.sampling_params,
                request.prompt_token_ids,
                new.output_token_ids,
                choice_index=request.choice_index,
                eos_token_ids=request.eos_token_ids,
            )
        except KernelInputError:
            self._batch.forget(request.request_id)
            raise
        num_top = request.sampling_params.prompt_logprobs
        if num_top is not None and not new.output_token_ids:
            self._prompt_scores[slot] = _PromptScores(num_top)

    def _forget(self, request_id: str) -> None:
        """Let go of a request; one that was never registered, its step having failed, is passed."""
        slot = self._batch.forget(request_id)
        if slot is not None:
            self._sampler.remove(slot)
            self._prompt_scores.pop(slot, None)

    def _sample(self, inputs: StepInputs, result: ModelRunnerOutput) -> None:
        for start in range(0, len(inputs.logits_rows), MAX_LOGITS_ROWS):
            part = slice(start, start + MAX_LOGITS_ROWS)
            slots = inputs.sampled_slots[part]
            logits = self._compute_logits(inputs.logits_rows[part])
            start_ns = perf_counter_ns()
            sampled = self._sampler.sample(logits, slots, inputs.output_positions[part])
            sampled_ns = perf_counter_ns()
            self._sampler.append_rows(slots, sampled.token_ids)
            self._batch.append(slots, sampled.token_ids)
            _collect(inputs.sampled_request_ids[part], sampled, result)
            self.times.sample_ns += sampled_ns - start_ns
            self.times.build_ns += perf_counter_ns() - sampled_ns

    def _compute_logits(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        start_ns = perf_counter_ns()
        logits = self._logits[: len(rows)]
        self._model.compute_logits(rows, logits)
        self.times.logits_ns += perf_counter_ns() - start_ns
        return logits

    def _score_prompts(
        self, scheduled: list[ScheduledRequest], inputs: StepInputs, result: ModelRunnerOutput
    ) -> None:
        """Report the logprobs of the prompt tokens that follow those computed in this step."""
        for index, row in enumerate(scheduled):
            slot = int(inputs.slots[index])
            scores = self._prompt_scores.get(slot)
            if scores is None:
                continue
            # The last prompt position is followed by the first output token, which is sampled.
            first = max(row.num_computed_tokens, scores.next_position)
            last = min(
                row.num_computed_tokens + row.num_scheduled_tokens,
                self._batch.num_prompt_tokens(slot) - 1,
            )
            if first >= last:
                continue
            offset = int(inputs.flat.query_start_loc[index]) - row.num_computed_tokens
            rows = np.arange(first + offset, last + offset, dtype=np.int32)
            targets = self._batch.token_ids(slot, first + 1, last + 1)
            try:
                reports = self._score_rows(rows, targets, scores.num_top)
            except RequestFailedError as error:
                result.errors[row.request_id] = str(error)
                continue
            scores.next_position = last
            result.prompt_logprobs[row.request_id] = tuple(reports)

    def _score_rows(
        self, rows: npt.NDArray[np.int32], targets: npt.NDArray[np.int32], num_top: int
    ) -> list[TokenLogprob]:
        reports: list[TokenLogprob] = []
        for start in range(0, len(rows), MAX_LOGITS_ROWS):
            part = slice(start, start + MAX_LOGITS_ROWS)
            logits = self._compute_logits(rows[part])
            start_ns = perf_counter_ns()
            reports += self._sampler.prompt_logprobs(logits, targets[part], num_top)
            self.times.sample_ns += perf_counter_ns() - start_ns
        return reports


def _collect(
    request_ids: tuple[str, ...], sampled: SampledTokens, result: ModelRunnerOutput
) -> None:
    """Put the rows of some requests into the step's result."""
    # zip of one list gives tuples of one token each.
    result.sampled_token_ids.update(
        zip(request_ids, zip(sampled.token_ids.tolist(), strict=True), strict=True)
    )
    for row in np.flatnonzero(sampled.ranks).tolist():
        logprob = sampled.token_logprob(row)
        if logprob is not None:
            result.logprobs[request_ids[row]] = (logprob,)
    for row, message in sampled.errors.items():
        result.errors[request_ids[row]] = message
