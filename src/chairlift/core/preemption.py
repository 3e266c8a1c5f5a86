"""Who loses slot and blocks to another request, and what becomes of the KV in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.kv_cache_manager import KVCacheManager
from chairlift.core.policies.base import SchedulingPolicy
from chairlift.core.request import Request
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize, context_tokens

_MS_PER_S = 1e3
_EMPTY_STEP = StepSize(0, 0, 0, 0)


class Preemption(NamedTuple):
    """What is done with the KV of a request that is preempted.

    Attributes:
        is_swapped: Its blocks are copied to the second tier as others need their place.
        estimate: What both ways would take, if that decided; for people to read.
    """

    is_swapped: bool
    estimate: str = ""

    @property
    def mode(self) -> str:
        """``swap`` or ``recompute``."""
        return "swap" if self.is_swapped else "recompute"


class PreemptionChooser:
    """Chooses between swapping and recomputing, for each request by itself.

    Swapping takes two copies of each block; computing again takes what the step cost model says of
    so many tokens on top of what a step costs anyway. Both are for the case that others need all
    the blocks. As long as there is no cost model yet, copying is taken to be the quicker way.
    """

    def __init__(self, config: SchedulerConfig, limits: EngineLimits, step_cost: StepCost) -> None:
        self._mode = config.preemption_mode if limits.num_swap_blocks else "recompute"
        self._limits = limits
        self._step_cost = step_cost

    def choose(self, request: Request) -> Preemption:
        """Decide what is done with the KV of a running request that must give way."""
        if self._mode != "auto":
            return Preemption(self._mode == "swap")
        num_tokens = request.num_computed_tokens
        size = StepSize(num_tokens, context_tokens(0, num_tokens), 1, 0)
        model = self._step_cost.model()
        if model is None:
            return Preemption(True)
        recompute_s = model.seconds(size) - model.seconds(_EMPTY_STEP)
        num_blocks = -(-num_tokens // self._limits.block_size)
        swap_s = 2 * num_blocks * self._limits.swap_block_s
        estimate = f"swap {swap_s * _MS_PER_S:.3g} ms, recompute {recompute_s * _MS_PER_S:.3g} ms"
        return Preemption(swap_s < recompute_s, estimate)


def last_in_order(running: Sequence[Request]) -> Request | None:
    """The last in the policy's order of the running requests that may be preempted.

    It loses its blocks when one of those that run finds none to grow into. That one may be
    preempted itself, because who may not has all it may ever need: so there is always somebody.
    """
    return next((request for request in reversed(running) if not request.keeps_blocks), None)


def requests_to_displace(
    request: Request,
    running: Iterable[Request],
    policy: SchedulingPolicy,
    kv_cache: KVCacheManager,
    *,
    needs_slot: bool,
    num_missing_blocks: int,
) -> list[Request]:
    """Which running requests, from the last in order, must give way for ``request`` to start.

    Only those that the policy lets give way, and no more than needed. Nobody if nothing is missing,
    or if all of them together would not be enough: nobody is preempted for nothing.

    Args:
        running: From the last to the first in the policy's order.
        needs_slot: No slot is free.
        num_missing_blocks: Blocks that are not available yet; 0 or less: none.
    """
    victims: list[Request] = []
    num_freed = 0
    for victim in running:
        if num_freed >= num_missing_blocks and (victims or not needs_slot):
            return victims
        if victim.keeps_blocks:
            continue
        if not policy.gives_way(request, victim):
            return []
        victims.append(victim)
        num_freed += kv_cache.num_own_blocks(victim)
    is_enough = num_freed >= num_missing_blocks and (bool(victims) or not needs_slot)
    return victims if is_enough else []
