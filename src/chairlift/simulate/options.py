"""What is simulated, as it is described on the command line; docstrings double as help texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.engine.tenants import Tenant
from chairlift.errors import ConfigError
from chairlift.simulate.cost_model import load_cost_model
from chairlift.simulate.replica import ReplicaSetup

_ANY_VOCABULARY = 1 << 40


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine whose steps are simulated.

    Attributes:
        cost_model: How long steps take: a file that chairlift bench calibrate wrote, or a preset
            (smollm2-135m-cpu).
        max_model_len: Most tokens of prompt and output together; longer requests are refused.
        block_size: Tokens per KV block.
        num_kv_blocks: Blocks in the KV pool.
        enable_prefix_caching: Reuse the blocks of common prefixes. Slower to simulate: every step
            is then run by itself. Without common prefixes it only matters after preemptions.
        num_swap_blocks: KV blocks in the second tier; 0: there is none.
        swap_block_s: Seconds to copy a KV block to the second tier or back; a server prints its
            own at start.
    """

    cost_model: str = "smollm2-135m-cpu"
    max_model_len: int = 8192
    block_size: int = 16
    num_kv_blocks: int = 16384
    enable_prefix_caching: bool = False
    num_swap_blocks: int = 0
    swap_block_s: float = 0.0001

    def __post_init__(self) -> None:
        for name in ("max_model_len", "block_size", "num_kv_blocks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("num_swap_blocks", "swap_block_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")

    def setup(self, scheduler: SchedulerConfig, tenants: tuple[Tenant, ...] = ()) -> ReplicaSetup:
        """Put together what a replica is made of.

        Args:
            tenants: Of which the scheduler is told here.

        Raises:
            ConfigError: There is no such cost model.
        """
        limits = EngineLimits(
            vocab_size=_ANY_VOCABULARY,
            max_model_len=self.max_model_len,
            block_size=self.block_size,
            num_kv_blocks=self.num_kv_blocks,
            max_num_waiting=scheduler.max_num_waiting,
            target_ttft_s=scheduler.target_ttft_s,
            num_swap_blocks=self.num_swap_blocks,
            swap_block_s=self.swap_block_s,
        )
        cost = load_cost_model(self.cost_model)
        known = replace(scheduler, tenants=tuple(tenant.scheduler_config for tenant in tenants))
        return ReplicaSetup(known, limits, cost, self.enable_prefix_caching, tenants)
