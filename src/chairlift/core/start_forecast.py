"""When a request that arrived now would start (``target_ttft``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.pacing import MIN_PREFILL_TOKENS, Pacing
from chairlift.core.request import Request, RequestStatus
from chairlift.core.step_cost import StepCost
from chairlift.core.step_size import StepSize

_MEMORY = 16
"""Requests over which the mean length of answers is taken, older ones fading."""


class StartDelay(NamedTuple):
    """How long a request that arrived now would wait for its first tokens in a step.

    Attributes:
        line_s: At the end of the line as it is, in seconds.
        each_s: What one more request before it would add, in seconds.
    """

    line_s: float = 0.0
    each_s: float = 0.0


class _Sums:
    """What runs and what waits, added up."""

    def __init__(self, requests: Collection[Request]) -> None:
        self.num_running = self.num_waiting = self.num_decodes = 0
        self.num_prompt_tokens = self.num_waiting_tokens = self.num_context_tokens = 0
        for request in requests:
            left = request.num_tokens - request.num_computed_tokens
            if request.status is not RequestStatus.RUNNING:
                self.num_waiting += 1
                self.num_waiting_tokens += request.num_tokens
            else:
                self.num_running += 1
                self.num_decodes += left <= 1
                self.num_context_tokens += request.num_tokens
            self.num_prompt_tokens += left if left > 1 else 0


class StartForecast:
    """Foretells from the steps' cost, the line, and how long answers have been.

    Those that run are taken to go on for as long as the mean of the last answers, or for as long
    as they may if no request has ended yet; they leave slots and blocks at that rate. Prompts are
    read at the rate of full steps. The latest of slot, blocks and prompts decides. The request is
    taken to go to the end of the line, whatever the policy would do for it.

    Args:
        block_size: Tokens per KV block.
    """

    def __init__(
        self, config: SchedulerConfig, pacing: Pacing, cost: StepCost, block_size: int
    ) -> None:
        self._is_wanted = config.target_ttft_s > 0.0
        self._pacing = pacing
        self._cost = cost
        self._block_size = block_size
        self._mean_output_tokens: float | None = None

    def ended(self, request: Request) -> None:
        """A running request has ended."""
        length, mean = float(request.num_output_tokens), self._mean_output_tokens
        self._mean_output_tokens = length if mean is None else mean + (length - mean) / _MEMORY

    def delay(self, requests: Collection[Request], num_available_blocks: int) -> StartDelay:
        """The delay as things are; 0 without a target or before there is a cost model.

        Args:
            requests: All that live.
            num_available_blocks: KV blocks that nobody holds.
        """
        model = self._cost.model() if self._is_wanted else None
        if model is None or not requests:
            return StartDelay()
        sums = _Sums(requests)
        step_s, prompt_s = self._step(model, sums)
        slots_per_s, blocks_per_s = self._rates(requests, step_s)
        num_missing_slots = sums.num_running + sums.num_waiting + 1 - self._pacing.limits.num_seqs
        # What the line and the request itself start with, one block each at least.
        num_blocks = sums.num_waiting_tokens // self._block_size + sums.num_waiting + 1
        num_missing_blocks = num_blocks - num_available_blocks
        line_s = sums.num_prompt_tokens * prompt_s
        each_s = prompt_s * (sums.num_prompt_tokens + sums.num_context_tokens) / len(requests)
        if num_missing_slots > 0 and slots_per_s > 0.0:
            line_s = max(line_s, num_missing_slots / slots_per_s)
        if num_missing_slots >= 0 and slots_per_s > 0.0:
            each_s = max(each_s, 1.0 / slots_per_s)
        if num_missing_blocks > 0 and blocks_per_s > 0.0:
            line_s = max(line_s, num_missing_blocks / blocks_per_s)
        return StartDelay(line_s, each_s)

    def _step(self, model: CostModel, sums: _Sums) -> tuple[float, float]:
        """Seconds of a step as they are now, and of a prompt token in steps full of them."""
        num_running = sums.num_running

        def with_prompts_s(num_prompt_tokens: int) -> float:
            num_tokens = num_running + num_prompt_tokens
            return model.seconds(
                StepSize(num_tokens, sums.num_context_tokens, num_running, num_running)
            )

        room = max(self._pacing.limits.num_tokens - sums.num_decodes, MIN_PREFILL_TOKENS)
        step_s = with_prompts_s(min(room, sums.num_prompt_tokens))
        return step_s, with_prompts_s(room) / room

    def _rates(self, requests: Collection[Request], step_s: float) -> tuple[float, float]:
        """Slots and blocks per second that those that run leave."""
        slots_per_s = blocks_per_s = 0.0
        for request in requests:
            if request.status is RequestStatus.RUNNING:
                num_left = float(request.max_num_tokens - request.num_tokens)
                if self._mean_output_tokens is not None:
                    num_left = min(num_left, self._mean_output_tokens)
                ends_per_s = 1.0 / (max(num_left, 1.0) * step_s)
                slots_per_s += ends_per_s
                blocks_per_s += ends_per_s * (request.num_slots // self._block_size)
        return slots_per_s, blocks_per_s
