"""The one seam between deciding and computing: real, simulated and fake runners implement it."""

from __future__ import annotations

from typing import Protocol

from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput


class ModelRunner(Protocol):
    """Executes the plan of a step.

    A runner keeps each registered request's tokens (prompt, and what it sampled itself), block
    table and sampling state until the request is named in ``finished_request_ids``. A preempted
    request keeps its tokens; its next row brings a whole new block table.
    """

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Compute all rows of ``plan`` and sample the rows that yield.

        Raises nothing for one bad request: that is reported in ``errors``. An exception means
        that the whole step failed.
        """
        ...
