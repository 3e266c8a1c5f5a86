"""A model runner that computes nothing and takes the time that computing would take."""

from __future__ import annotations

from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.core.step_size import step_size
from chairlift.simulate.virtual_clock import VirtualClock

SAMPLED_TOKEN_ID = 0


class SimulatedRunner:
    """As :class:`~chairlift.core.runner_protocol.ModelRunner`: every row samples the same token.

    With it, an :class:`~chairlift.engine.engine_core.EngineCore` on a virtual clock is the product
    without its model.

    Args:
        swap_block_s: Seconds to copy a KV block between the tiers.
    """

    def __init__(self, cost: CostModel, clock: VirtualClock, swap_block_s: float = 0.0) -> None:
        self._cost = cost
        self._clock = clock
        self._swap_block_s = swap_block_s

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Let the time of the step pass."""
        if plan.scheduled:
            copies_s = plan.num_copies * self._swap_block_s
            self._clock.advance(self._cost.seconds(step_size(plan)) + copies_s)
        sampled = (SAMPLED_TOKEN_ID,)
        return ModelRunnerOutput(
            {row.request_id: sampled for row in plan.scheduled if row.yields_token}
        )
