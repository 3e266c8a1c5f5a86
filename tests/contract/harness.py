"""Runs requests through a whole engine, step by step, and gives back their exact answers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from chairlift.config import (
    CacheConfig,
    Dtype,
    EngineConfig,
    KvCacheDtype,
    ModelConfig,
    PreemptionMode,
    Quantization,
    SchedulerConfig,
)
from chairlift.engine.engine_core import EngineCore
from chairlift.engine.factory import build_engine_core
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, StepOutput, TokenLogprob
from chairlift.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=2)
SEEDED = SamplingParams(
    temperature=0.9,
    top_p=0.95,
    top_k=50,
    seed=7,
    max_tokens=24,
    ignore_eos=True,
    logprobs=2,
    repetition_penalty=1.1,
    presence_penalty=0.2,
)


@dataclass(frozen=True)
class Job:
    """One request of a scenario: what it asks, when it comes, when it is cancelled (in steps)."""

    name: str
    prompt: tuple[int, ...]
    params: SamplingParams = GREEDY
    arrives_at: int = 0
    cancelled_at: int | None = None
    cache_salt: str = ""
    choice_index: int = 0


@dataclass(frozen=True)
class Answer:
    """All that a request got back, logprobs as bit patterns so that equal means bitwise equal."""

    token_ids: tuple[int, ...]
    logprob_bits: tuple[bytes, ...]
    prompt_logprob_bits: tuple[bytes, ...]
    finish_reason: FinishReason | None


@dataclass(frozen=True)
class Setting:
    """The conditions a scenario runs under; none of them may show in an answer."""

    model: Path
    dtype: Dtype = "float32"
    quantization: Quantization = "none"
    kv_cache_dtype: KvCacheDtype = "auto"
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    num_kv_blocks: int = 400
    block_size: int = 16
    num_threads: int = 1
    enable_prefix_caching: bool = True
    preemption_mode: PreemptionMode = "auto"
    max_preemptions: int = 3
    swap_space: float = 0.0
    swap_path: str = ""
    target_itl_s: float = 0.0
    scheduler_delay_factor: float = 0.0

    def build(self) -> EngineCore:
        """An engine core under these conditions."""
        built = build_engine_core(
            EngineConfig(
                model=ModelConfig(
                    model=str(self.model), dtype=self.dtype, quantization=self.quantization
                ),
                cache=CacheConfig(
                    block_size=self.block_size,
                    kv_cache_dtype=self.kv_cache_dtype,
                    num_kv_blocks=self.num_kv_blocks,
                    enable_prefix_caching=self.enable_prefix_caching,
                    swap_space=self.swap_space,
                    swap_path=self.swap_path,
                ),
                scheduler=SchedulerConfig(
                    max_num_seqs=self.max_num_seqs,
                    max_num_batched_tokens=max(self.max_num_batched_tokens, self.max_num_seqs),
                    preemption_mode=self.preemption_mode,
                    max_preemptions=self.max_preemptions,
                    target_itl_s=self.target_itl_s,
                    scheduler_delay_factor=self.scheduler_delay_factor,
                ),
                num_threads=self.num_threads,
            )
        )
        return built.core


@dataclass
class Run:
    """What happened in a scenario."""

    answers: dict[str, Answer]
    num_preemptions: int
    num_steps: int
    num_swapped_tokens: int = 0
    num_cached_tokens: dict[str, int] = field(default_factory=dict)


def play(core: EngineCore, jobs: list[Job]) -> Run:
    """Run jobs through an engine core to the end of the last one."""
    before = core.stats().scheduler
    outputs: dict[str, list[StepOutput]] = {job.name: [] for job in jobs}
    last_event = max(max(job.arrives_at, job.cancelled_at or 0) for job in jobs)
    step = 0
    while step <= last_event or core.has_work:
        for job in jobs:
            if job.arrives_at == step:
                core.add_request(_core_request(job))
            if job.cancelled_at == step:
                for output in core.abort([job.name]):
                    outputs[output.request_id].append(output)
        for output in core.step():
            outputs[output.request_id].append(output)
        step += 1
    after = core.stats().scheduler
    return Run(
        answers={name: _answer(pieces) for name, pieces in outputs.items()},
        num_preemptions=after.num_preemptions_total - before.num_preemptions_total,
        num_steps=step,
        num_swapped_tokens=after.swapped_tokens_total - before.swapped_tokens_total,
        num_cached_tokens={
            name: max((p.num_cached_tokens for p in pieces), default=0)
            for name, pieces in outputs.items()
        },
    )


def alone(core: EngineCore, job: Job) -> Answer:
    """The answer of a job that has the engine for itself."""
    return play(
        core, [Job(job.name, job.prompt, job.params, choice_index=job.choice_index)]
    ).answers[job.name]


def _core_request(job: Job) -> CoreRequest:
    return CoreRequest(
        request_id=job.name,
        prompt_token_ids=job.prompt,
        sampling_params=job.params,
        arrival_time_s=0.0,
        eos_token_ids=(),
        choice_index=job.choice_index,
        cache_salt=job.cache_salt,
    )


def _answer(pieces: list[StepOutput]) -> Answer:
    return Answer(
        token_ids=tuple(t for piece in pieces for t in piece.token_ids),
        logprob_bits=tuple(_bits(entry) for piece in pieces for entry in piece.logprobs),
        prompt_logprob_bits=tuple(_bits(e) for piece in pieces for e in piece.prompt_logprobs),
        finish_reason=pieces[-1].finish_reason if pieces else None,
    )


def _bits(entry: TokenLogprob) -> bytes:
    numbers = [entry.token_id, entry.rank, *(token_id for token_id, _ in entry.top)]
    floats = [entry.logprob, *(logprob for _, logprob in entry.top)]
    return struct.pack(f"<{len(numbers)}q{len(floats)}d", *numbers, *floats)
