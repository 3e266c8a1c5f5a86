"""What a user can set about an engine, checked when it is made; docstrings double as help texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from chairlift.errors import ConfigError

Dtype = Literal["float32", "bfloat16"]
Quantization = Literal["none", "int8", "gguf"]
KvCacheDtype = Literal["auto", "float32", "bfloat16", "int8"]
BatchingMode = Literal["continuous", "static", "dynamic"]
PreemptionMode = Literal["recompute", "swap", "auto"]

POLICIES = ("fcfs", "priority", "fair", "prefix")
DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, in which arithmetic.

    Attributes:
        model: Alias, .gguf file, Hugging Face folder or Hugging Face id.
        dtype: Weights and activations at matrix products; sums are float32 in both.
        quantization: none: weights are expanded to dtype when the model is loaded. int8: weights
            and their inputs are rounded to 8 bits, whatever the file holds: half the memory of
            bfloat16 and up to twice the speed, for slightly different tokens. gguf: Q4_0, Q4_1,
            Q8_0, Q4_K and Q6_K weights of a GGUF file stay as they are in it, at its size; the
            tokens are those of bfloat16 (docs/quantization.md).
        max_model_len: Most tokens of prompt and output together; 0: the model's own limit.
        weight_cache_bytes: Disk space for weights packed at earlier starts, so that the next one
            reads them as they are; 0: none are kept.
    """

    model: str = DEFAULT_MODEL
    dtype: Dtype = "bfloat16"
    quantization: Quantization = "none"
    max_model_len: int = 0
    weight_cache_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, get_args(Dtype))
        _check_choice("quantization", self.quantization, get_args(Quantization))
        if self.quantization == "gguf" and self.dtype != "bfloat16":
            raise ConfigError(
                f"dtype must be bfloat16 with quantization gguf, got {self.dtype}: leave one of "
                "the two out"
            )
        _check_at_least("max_model_len", self.max_model_len, 0)
        _check_at_least("weight_cache_bytes", self.weight_cache_bytes, 0)


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """How large the paged KV cache is and how it is cut.

    Attributes:
        block_size: Tokens per KV block. Multiples of 16 are fastest.
        kv_cache_dtype: What keys and values are kept as; auto: the dtype. int8 holds nearly twice
            the tokens of bfloat16 in the same memory and reads long contexts faster, a little less
            exactly.
        num_kv_blocks: Blocks in the pool; 0: from ``kv_cache_memory_bytes``.
        kv_cache_memory_bytes: Size of the pool in bytes; 0: ``memory_utilization`` of the memory
            this process may still use once the weights are loaded.
        memory_utilization: Share of the free memory to give to the pool, (0, 1).
        enable_prefix_caching: Keep full blocks and reuse them for equal prefixes.
        swap_space: Size in GiB of the second tier, to which KV blocks of preempted requests are
            copied when others need their place; 0: none.
        swap_path: Folder for the second tier, which is then a file as large as ``swap_space``;
            empty: it is in memory.
    """

    block_size: int = 16
    kv_cache_dtype: KvCacheDtype = "auto"
    num_kv_blocks: int = 0
    kv_cache_memory_bytes: int = 0
    memory_utilization: float = 0.5
    enable_prefix_caching: bool = True
    swap_space: float = 0.0
    swap_path: str = ""

    def __post_init__(self) -> None:
        _check_at_least("block_size", self.block_size, 1)
        _check_choice("kv_cache_dtype", self.kv_cache_dtype, get_args(KvCacheDtype))
        _check_at_least("num_kv_blocks", self.num_kv_blocks, 0)
        _check_at_least("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 0)
        if self.num_kv_blocks and self.kv_cache_memory_bytes:
            raise ConfigError("set num_kv_blocks or kv_cache_memory_bytes, not both")
        if not 0.0 < self.memory_utilization < 1.0:
            raise ConfigError(
                f"memory_utilization must be between 0 and 1, got {self.memory_utilization}"
            )
        if not 0.0 <= self.swap_space <= 1e6:
            raise ConfigError(
                f"swap_space must be between 0 and 1000000 GiB, got {self.swap_space}"
            )
        if self.swap_path and not self.swap_space:
            raise ConfigError(
                f"swap_path {self.swap_path} is of no use without swap_space, its size in GiB"
            )


@dataclass(frozen=True, slots=True)
class TenantConfig:
    """What one tenant may have.

    Attributes:
        name: As requests name it; the empty name is everybody without one.
        weight: Share of service under the ``fair`` policy, relative to other tenants.
        max_running: Most of its requests running at once; 0: no limit of its own.
    """

    name: str
    weight: float = 1.0
    max_running: int = 0

    def __post_init__(self) -> None:
        _check_at_least("max_running", self.max_running, 0)
        if not 0.0 < self.weight <= 1e6:
            raise ConfigError(
                f"weight of tenant {self.name!r} must be above 0 and at most 1e6, got {self.weight}"
            )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What one step may hold, and in which mode requests are batched.

    Attributes:
        max_num_seqs: Most requests running at once.
        max_num_batched_tokens: Most tokens computed in one step. Larger: more throughput while
            prompts are read; smaller: shorter gaps between tokens of running requests.
        max_num_waiting: Most requests waiting; beyond it new ones are refused (HTTP 429).
        batching: ``continuous`` decides anew at every step. ``static`` takes a batch and runs it
            to the end of its longest member; ``dynamic`` does so with batches collected for
            ``batch_window_s``. Those two exist to be compared with.
        batch_window_s: How long ``dynamic`` waits for a batch to fill, in seconds.
        scheduling_policy: Who goes next: fcfs first come, first served; priority urgent requests
            first; fair equal service for tenants; prefix cached prefixes first; or
            module:Class, a policy of your own.
        priority_aging_s: Under ``priority``, waiting so long counts like one priority step, in
            seconds.
        prefix_max_wait_s: Under ``prefix``, who has waited so long goes first, in seconds.
        max_head_passes: How many later requests may start before one whose KV blocks are not
            there; then blocks are kept for it.
        preemption_mode: What becomes of the KV of a request that must give way: recompute it on
            return; swap it to the second tier (``swap_space``) as far as its place is needed;
            or auto: what is estimated to take less time, per request.
        max_preemptions: How often a request may lose its KV blocks. After that it returns only
            with blocks for all it may still need, and keeps them. 0: all requests start so.
        target_itl_s: While requests decode, a step holds as many tokens as it is foretold to
            compute in so many seconds: prompts are read in smaller pieces, and no more requests
            run than can all decode in that time. 0: no target.
        target_ttft_s: Requests that are foretold to start later than so many seconds after they
            came are refused at once (HTTP 429). 0: no target.
        max_queue_time_s: Requests that have waited so many seconds without a start are ended
            (HTTP 503). 0: none are.
        scheduler_delay_factor: New requests wait for so many times what the last step with a new
            prompt took, so that prompts gather, unless nothing runs. 0: they do not.
        tenants: Weights and limits of tenants that are not like the others.
    """

    max_num_seqs: int = 128
    max_num_batched_tokens: int = 512
    max_num_waiting: int = 4096
    batching: BatchingMode = "continuous"
    batch_window_s: float = 0.05
    scheduling_policy: str = "fcfs"
    priority_aging_s: float = 10.0
    prefix_max_wait_s: float = 2.0
    max_head_passes: int = 32
    preemption_mode: PreemptionMode = "auto"
    max_preemptions: int = 3
    target_itl_s: float = 0.0
    target_ttft_s: float = 0.0
    max_queue_time_s: float = 0.0
    scheduler_delay_factor: float = 0.0
    tenants: tuple[TenantConfig, ...] = ()

    def __post_init__(self) -> None:
        _check_at_least("max_num_seqs", self.max_num_seqs, 1)
        _check_at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        _check_at_least("max_num_waiting", self.max_num_waiting, 1)
        _check_choice("batching", self.batching, get_args(BatchingMode))
        if ":" not in self.scheduling_policy:
            _check_choice("scheduling_policy", self.scheduling_policy, POLICIES)
        _check_at_least("max_head_passes", self.max_head_passes, 0)
        _check_choice("preemption_mode", self.preemption_mode, get_args(PreemptionMode))
        _check_at_least("max_preemptions", self.max_preemptions, 0)
        for name in ("priority_aging_s", "prefix_max_wait_s"):
            if not 0.0 < getattr(self, name) <= 86400.0:
                raise ConfigError(
                    f"{name} must be above 0 and at most 86400 seconds, got {getattr(self, name)}"
                )
        for name in ("target_itl_s", "target_ttft_s", "max_queue_time_s"):
            if not 0.0 <= getattr(self, name) <= 86400.0:
                raise ConfigError(
                    f"{name} must be between 0 and 86400 seconds, got {getattr(self, name)}"
                )
        if not 0.0 <= self.scheduler_delay_factor <= 1000.0:
            raise ConfigError(
                "scheduler_delay_factor must be between 0 and 1000, "
                f"got {self.scheduler_delay_factor}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}), so that every running request can decode "
                "in each step; raise the first or lower the second"
            )
        if not 0.0 <= self.batch_window_s <= 3600.0:
            raise ConfigError(
                f"batch_window_s must be between 0 and 3600 seconds, got {self.batch_window_s}"
            )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine is built from.

    Attributes:
        num_threads: Threads of the CPU backend; 0: what affinity and CPU quota allow.
        step_log: Write a line of JSON for every step to this file: what was in it and how long it
            took; chairlift bench calibrate --from-log reads it.
        step_trace: Write a trace of the steps to this file, with their parts, requests and KV
            blocks, for ui.perfetto.dev or chrome://tracing.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    num_threads: int = 0
    step_log: str = ""
    step_trace: str = ""

    def __post_init__(self) -> None:
        _check_at_least("num_threads", self.num_threads, 0)
        if self.scheduler.preemption_mode == "swap" and not self.cache.swap_space:
            raise ConfigError(
                "preemption_mode swap needs swap_space above 0, the size of the second tier in GiB"
            )


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What is known once the model is loaded and the pool allocated; the one bound for requests.

    The same object is used by the validator at the door and by the scheduler, so that nothing is
    accepted that could not finish in an empty pool.

    Attributes:
        num_swap_blocks: Blocks in the second tier.
        swap_block_s: Seconds that it takes to copy one there or back, as measured at start.
    """

    vocab_size: int
    max_model_len: int
    block_size: int
    num_kv_blocks: int
    max_num_waiting: int
    num_swap_blocks: int = 0
    swap_block_s: float = 0.0
    target_ttft_s: float = 0.0

    @property
    def pool_tokens(self) -> int:
        """Tokens that fit into the empty KV pool."""
        return self.num_kv_blocks * self.block_size

    @property
    def max_total_tokens(self) -> int:
        """Most prompt plus output tokens of one request.

        The last output token is never fed back, so its KV needs no slot.
        """
        return min(self.max_model_len, self.pool_tokens + 1)

    def fits(self, num_prompt_tokens: int, max_tokens: int) -> bool:
        """Whether a request can finish in an empty pool: the bound for validator and scheduler."""
        num_slots = num_prompt_tokens + max(max_tokens - 1, 0)
        num_tokens = num_prompt_tokens + max_tokens
        return num_tokens <= self.max_model_len and num_slots <= self.pool_tokens


def _check_at_least(name: str, value: int, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name} must be an integer of at least {low}, got {value!r}")


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
