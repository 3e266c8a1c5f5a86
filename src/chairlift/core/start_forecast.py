"""When a request that arrived now would start (``target_ttft``)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.pacing import MIN_PREFILL_TOKENS, Pacing
from chairlift.core.policies.base import Outlook, SchedulingPolicy
from chairlift.core.request import Request, RequestStatus
from chairlift.core.start_delays import NO_DELAYS, StartDelay, StartDelays
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize

_MEMORY = 16
"""Requests over which the mean length of answers is taken, older ones fading."""


class _Sums:
    """What runs and what waits, added up: all of it, or what stays before a newcomer."""

    def __init__(self) -> None:
        self.num_running = self.num_waiting = self.num_decodes = 0
        self.num_prompt_tokens = self.num_waiting_tokens = self.num_context_tokens = 0
        self.num_slots = 0  # that running requests have KV blocks for
        self.ends_per_step = self.slots_per_step = 0.0

    def add(self, request: Request, mean_output_tokens: float) -> None:
        """Add a request."""
        left = request.num_tokens - request.num_computed_tokens
        self.num_prompt_tokens += left if left > 1 else 0
        if request.status is not RequestStatus.RUNNING:
            self.num_waiting += 1
            self.num_waiting_tokens += request.num_tokens
            return
        self.num_running += 1
        self.num_decodes += left <= 1
        self.num_context_tokens += request.num_tokens
        self.num_slots += request.num_slots
        most = float(request.max_num_tokens - request.num_prompt_tokens)
        num_steps = min(most, max(mean_output_tokens, float(request.num_output_tokens)))
        self.ends_per_step += 1.0 / max(num_steps, 1.0)
        self.slots_per_step += request.num_slots / max(num_steps, 1.0)

    def merge(self, other: _Sums) -> None:
        """Add what another has added up."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class _Moment(NamedTuple):
    """What all forecasts of one moment have in common.

    Attributes:
        sums: Of all requests.
        step_s: Seconds of a step as they are now.
        prompt_s: Seconds of a prompt token in steps full of them.
        num_available_blocks: KV blocks that nobody holds.
    """

    sums: _Sums
    step_s: float
    prompt_s: float
    num_available_blocks: int


class StartForecast:
    """Foretells from the steps' cost, the line, and how long answers have been.

    Answers are taken to be as long as the mean of the last ones, or as they may be if no request
    has ended yet; those that run leave slots and blocks at the rate of one for each such length,
    since as a rule each of them is somewhere in the middle of its answer. Prompts are
    read at the rate of full steps. The latest of slot, blocks and prompts decides. Who is before a
    newcomer is asked of the policy; without an answer, all are.

    Args:
        block_size: Tokens per KV block.
    """

    def __init__(
        self, config: SchedulerConfig, pacing: Pacing, cost: StepCost, block_size: int
    ) -> None:
        self._is_wanted = config.target_ttft_s > 0.0
        self._is_continuous = config.batching == "continuous"
        self._pacing = pacing
        self._cost = cost
        self._block_size = block_size
        self._mean_output_tokens = math.inf

    def ended(self, request: Request) -> None:
        """A running request has ended."""
        length, mean = float(request.num_output_tokens), self._mean_output_tokens
        self._mean_output_tokens = length if mean == math.inf else mean + (length - mean) / _MEMORY

    def delays(
        self,
        live: Collection[Request],
        policy: SchedulingPolicy,
        num_available_blocks: int,
        now_s: float,
    ) -> StartDelays:
        """The delays as things are; 0 without a target or before there is a cost model.

        Args:
            live: All requests that have not ended.
            num_available_blocks: KV blocks that nobody holds.
            now_s: When the last step was planned.
        """
        model = self._cost.model() if self._is_wanted else None
        if model is None or not live:
            return NO_DELAYS
        latest_s = max(now_s, max(request.core_request.arrival_time_s for request in live))
        outlook = policy.outlook(latest_s, self._mean_output_tokens)
        groups = self._groups(live, outlook)
        sums = _Sums()
        for group in groups.values():
            sums.merge(group)
        moment = _Moment(sums, *self._step(model, sums), num_available_blocks)
        at_end = self._delay(moment, sums)
        if outlook is None:
            return StartDelays(at_end)
        before, by_rank = _Sums(), []
        for rank in sorted({-math.inf, *groups}):
            if rank in groups:
                before.merge(groups[rank])
            by_rank.append((rank, self._delay(moment, before)))
        return StartDelays(at_end, tuple(by_rank), outlook.ranks, outlook.other_rank)

    def _groups(self, live: Collection[Request], outlook: Outlook | None) -> Mapping[float, _Sums]:
        """What runs and waits by rank; if only some ranks count, by the next one that does."""
        mean, groups = self._mean_output_tokens, defaultdict[float, _Sums](_Sums)
        if outlook is None:
            for request in live:
                groups[0.0].add(request, mean)
            return groups
        known = None
        if outlook.ranks is not None:
            known = sorted({outlook.other_rank, *outlook.ranks.values(), math.inf})
        for request in live:
            rank = self._rank_of(request, outlook)
            if known is not None and rank > -math.inf:
                rank = known[bisect_left(known, rank)]
            groups[rank].add(request, mean)
        return groups

    def _rank_of(self, request: Request, outlook: Outlook) -> float:
        """As the policy says, but for those that give way to nobody."""
        is_running = request.status is RequestStatus.RUNNING
        if is_running and not self._is_continuous:
            return -math.inf
        if request.keeps_blocks and (is_running or request.num_preemptions > 0):
            return -math.inf
        return outlook.rank_of(request)

    def _delay(self, moment: _Moment, before: _Sums) -> StartDelay:
        """The delay of a newcomer that some stay before; the others make room for it."""
        sums, step_s = moment.sums, moment.step_s
        ends_per_s = (before.ends_per_step or sums.ends_per_step) / step_s
        num_missing_slots = before.num_running + before.num_waiting + 1
        num_missing_slots -= self._pacing.limits.num_seqs
        start_s = before.num_prompt_tokens * moment.prompt_s
        num_live = sums.num_running + sums.num_waiting
        each_s = moment.prompt_s * (sums.num_prompt_tokens + sums.num_context_tokens) / num_live
        if num_missing_slots >= 0 and ends_per_s > 0.0:
            start_s = max(start_s, num_missing_slots / ends_per_s)
            each_s = max(each_s, 1.0 / ends_per_s)
        # What those in the line and the newcomer start with, one block each at least.
        num_blocks = before.num_waiting_tokens // self._block_size + before.num_waiting + 1
        num_left = (sums.num_slots - before.num_slots) // self._block_size
        num_missing_blocks = num_blocks - moment.num_available_blocks - num_left
        blocks_per_s = before.slots_per_step / self._block_size / step_s
        if num_missing_blocks > 0 and blocks_per_s > 0.0:
            start_s = max(start_s, num_missing_blocks / blocks_per_s)
        return StartDelay(start_s, each_s)

    def _step(self, model: CostModel, sums: _Sums) -> tuple[float, float]:
        """Seconds of a step while the line moves on, and of a prompt token in steps full of them.

        As many prompts are read in a step, on average, as requests end in it.
        """
        num_running, num_live = sums.num_running, sums.num_running + sums.num_waiting

        def with_prompts_s(num_prompt_tokens: int) -> float:
            num_tokens = num_running + num_prompt_tokens
            return model.seconds(
                StepSize(num_tokens, sums.num_context_tokens, num_running, num_running)
            )

        room = max(self._pacing.limits.num_tokens - sums.num_decodes, MIN_PREFILL_TOKENS)
        mean_tokens = (sums.num_prompt_tokens + sums.num_context_tokens) / num_live
        num_new_tokens = int(min(room, sums.num_prompt_tokens, sums.ends_per_step * mean_tokens))
        return with_prompts_s(num_new_tokens), with_prompts_s(room) / room
