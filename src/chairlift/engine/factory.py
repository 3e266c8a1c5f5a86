"""The one place that joins model, kernels, runner and scheduler into an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chairlift.config import EngineConfig, EngineLimits, ModelConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import NewRequest, ScheduledRequest, SchedulerOutput
from chairlift.engine.cost_rehearsal import needs_costs, rehearse_costs
from chairlift.engine.engine_core import EngineCore, StepObserver
from chairlift.engine.messages import EngineInfo
from chairlift.engine.phase_timer import PhaseCallback, PhaseTimer
from chairlift.engine.step_log import StepLog
from chairlift.engine.step_numbers import StepNumbers
from chairlift.engine.step_trace import StepTrace
from chairlift.engine.weights import load_weights
from chairlift.errors import ConfigError
from chairlift.inputs import CoreRequest
from chairlift.kernels.cpu_model import CpuModel
from chairlift.models.loaded_model import LoadedModel
from chairlift.models.loader import load_model
from chairlift.process_memory import resident_bytes
from chairlift.runner.cpu_runner import CpuRunner, logits_bytes
from chairlift.runner.memory import KVPoolSize, kv_pool_size, usable_memory_bytes
from chairlift.runner.sampler import Sampler
from chairlift.runner.swap import open_swap_space, swap_memory_bytes
from chairlift.runner.weight_cache import Saving
from chairlift.sampling_params import SamplingParams

_WARM_UP_TOKENS = 32


@dataclass(frozen=True, slots=True)
class BuiltCore:
    """An engine core that can compute, and what there is to know about it.

    Attributes:
        saving: Its weights on their way to the cache, if they were not there.
    """

    core: EngineCore
    info: EngineInfo
    saving: Saving | None = None


def build_engine_core(config: EngineConfig, on_phase: PhaseCallback | None = None) -> BuiltCore:
    """Load a model and make an engine core of it.

    Args:
        on_phase: Told each part of the start, with its seconds, as it ends.

    Raises:
        ConfigError: The configuration does not go with the model or the machine.
        ModelLoadError: The model cannot be found or loaded.
    """
    timer = PhaseTimer(on_phase)
    with timer.phase("open model"):
        model = load_model(config.model.model)
    return build_core_of(config, model, timer)


def build_core_of(config: EngineConfig, model: LoadedModel, timer: PhaseTimer) -> BuiltCore:
    """Make an engine core of a model that has been opened.

    Args:
        timer: Counts the parts of the start.

    Raises:
        ConfigError: The configuration does not go with the model or the machine.
        ModelLoadError: A weight is missing.
    """
    max_model_len = _max_model_len(config, model)
    base_bytes = resident_bytes()
    cpu_model, saving = load_weights(config, model, timer)
    step_bytes = cpu_model.buffer_bytes + logits_bytes(model.spec.vocab_size)
    with timer.phase("kv pool"):
        pool = _kv_pool(
            config, cpu_model, max_model_len, max(0, usable_memory_bytes() - step_bytes)
        )
        cpu_model.allocate_kv(pool.num_blocks, config.cache.block_size)
        swap = open_swap_space(
            cpu_model,
            config.cache,
            bytes_per_block=pool.bytes_per_block,
            num_kv_blocks=pool.num_blocks,
        )
        limits = EngineLimits(
            vocab_size=model.spec.vocab_size,
            max_model_len=max_model_len,
            block_size=config.cache.block_size,
            num_kv_blocks=pool.num_blocks,
            max_num_waiting=config.scheduler.max_num_waiting,
            num_swap_blocks=swap.num_blocks,
            swap_block_s=swap.block_s,
            target_ttft_s=config.scheduler.target_ttft_s,
        )
        scheduler = Scheduler(
            config.scheduler, limits, enable_prefix_caching=config.cache.enable_prefix_caching
        )
    runner = CpuRunner(
        cpu_model,
        Sampler(model.spec.vocab_size, cpu_model.team),
        num_slots=config.scheduler.max_num_seqs,
        block_size=config.cache.block_size,
    )
    with timer.phase("warm-up"):
        warm_up(runner, config, limits)
        if needs_costs(config.scheduler):
            rehearse_costs(runner, scheduler.step_cost, config.scheduler, limits)
            runner.times.reset()
    core = EngineCore(
        scheduler,
        runner,
        runner_times=runner.times,
        max_queue_time_s=config.scheduler.max_queue_time_s,
    )
    _observe(core, config)
    info = EngineInfo(
        limits=limits,
        model_name=model.name,
        quantization=model.quantization,
        dtype=_arithmetic(config.model),
        isa=cpu_model.isa,
        num_threads=cpu_model.num_threads,
        weight_bytes=cpu_model.weight_bytes,
        kv_pool_bytes=pool.size_bytes,
        kv_pool_reason=pool.reason,
        kv_cache_dtype=_kv_cache_dtype(config),
        stats=core.stats(),
        phases=timer.phases,
        other_bytes=base_bytes + step_bytes + swap_memory_bytes(config.cache),
    )
    return BuiltCore(core, info, saving)


def _observe(core: EngineCore, config: EngineConfig) -> None:
    """Have the steps written down, if and where the configuration says so."""
    observers: list[StepObserver] = []
    if config.step_log:
        numbers = StepNumbers(core.stats)
        observers.append(StepLog(Path(config.step_log), numbers=numbers))
    if config.step_trace:
        observers.append(StepTrace(Path(config.step_trace), StepNumbers(core.stats)))

    def tell_all(plan: SchedulerOutput, seconds: float) -> None:
        for observer in observers:
            observer(plan, seconds)

    if observers:
        core.observe_steps(tell_all)


def warm_up(runner: CpuRunner, config: EngineConfig, limits: EngineLimits) -> None:
    """Compute a short prompt and one more token, so that the first request finds all in place.

    What a first step pays for is touching buffers and weights for the first time. The KV it writes
    is never read: no request knows of it.
    """
    num_tokens = min(
        _WARM_UP_TOKENS, limits.max_total_tokens - 1, config.scheduler.max_num_batched_tokens
    )
    if num_tokens < 1:
        return
    request = CoreRequest(
        request_id="warm-up",
        prompt_token_ids=tuple(i % limits.vocab_size for i in range(num_tokens)),
        sampling_params=SamplingParams(max_tokens=2, temperature=1.0, top_p=0.9, seed=0),
        arrival_time_s=0.0,
        eos_token_ids=(),
    )
    blocks = tuple(range(-(-(num_tokens + 1) // limits.block_size)))[: limits.num_kv_blocks]
    prompt = ScheduledRequest(request.request_id, 0, num_tokens, blocks, True, True)
    runner.execute(SchedulerOutput(0, [prompt], new_requests=[NewRequest(request)]))
    if num_tokens < limits.pool_tokens:
        decode = ScheduledRequest(request.request_id, num_tokens, 1, (), False, True)
        runner.execute(SchedulerOutput(0, [decode]))
    runner.execute(SchedulerOutput(0, [], finished_request_ids=[request.request_id]))
    runner.times.reset()


def _max_model_len(config: EngineConfig, model: LoadedModel) -> int:
    own, asked = model.spec.max_position_embeddings, config.model.max_model_len
    if asked > own:
        raise ConfigError(
            f"max_model_len must be at most {own}, the context length of {model.name}, got {asked}"
        )
    return asked or own


def _arithmetic(model: ModelConfig) -> str:
    if model.quantization == "none":
        return model.dtype
    return f"{model.quantization} and {model.dtype}"


def _kv_cache_dtype(config: EngineConfig) -> str:
    asked = config.cache.kv_cache_dtype
    return config.model.dtype if asked == "auto" else asked


def _kv_pool(
    config: EngineConfig, cpu_model: CpuModel, max_model_len: int, usable_bytes: int
) -> KVPoolSize:
    """Size the pool; a second tier in memory is kept out of what it may have."""
    swap_bytes = swap_memory_bytes(config.cache)
    if swap_bytes and swap_bytes >= usable_bytes:
        raise ConfigError(
            f"swap_space {config.cache.swap_space:g} GiB does not fit into memory: this process "
            f"may use only {usable_bytes} more bytes; lower it, or set swap_path to a folder"
        )
    return kv_pool_size(
        config.cache,
        bytes_per_block=cpu_model.kv_bytes_per_block(config.cache.block_size),
        max_model_len=max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
        usable_bytes=usable_bytes - swap_bytes,
    )
