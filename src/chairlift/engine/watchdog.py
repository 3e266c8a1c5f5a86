"""Notices an engine that has work and does not get on with it, says why, and ends the cause.

Nothing should ever make it act: the scheduler admits only what can finish. It guards against a
mistake in the scheduler or in a policy of the user's own, which would otherwise show as requests
that wait for ever beside an idle machine.
"""

from __future__ import annotations

import logging

from chairlift.core.scheduler import Scheduler
from chairlift.outputs import FinishReason, RequestReport, StepOutput

_LOGGER = logging.getLogger(__name__)

MAX_STALLED_STEPS = 64


class Watchdog:
    """Counts steps in a row that computed nothing although requests wait.

    Args:
        scheduler: Asked for reasons, and told to drop what can never run.
        max_stalled_steps: How many such steps are too many.
    """

    def __init__(self, scheduler: Scheduler, max_stalled_steps: int = MAX_STALLED_STEPS) -> None:
        self._scheduler = scheduler
        self._max_stalled_steps = max_stalled_steps
        self._num_stalled = 0

    def advanced(self) -> None:
        """A step has computed something."""
        self._num_stalled = 0

    def stalled(self, now_s: float) -> list[StepOutput]:
        """A step has computed nothing; returns the failures of what is given up.

        Nothing runs, so nothing will change for the request whose turn it is: it can never run, and
        it is failed. Without such a request the policy is at fault, and all are failed.
        """
        if self._scheduler.next_wakeup_s(now_s) != 0.0:  # idle, or time has to pass
            self._num_stalled = 0
            return []
        self._num_stalled += 1
        if self._num_stalled < self._max_stalled_steps:
            return []
        self._num_stalled = 0
        return self._give_up()

    def _give_up(self) -> list[StepOutput]:
        live = [report for report in self._scheduler.explain() if report.state != "finished"]
        first = [report for report in live if report.position == 0]
        reasons = {report.request_id: self._reason(report) for report in first or live}
        for request_id, reason in reasons.items():
            _LOGGER.error("%d requests wait and nothing runs: %s %s", len(live), request_id, reason)
        return [
            StepOutput(
                output.request_id,
                finish_reason=FinishReason.ERROR,
                error=reasons[output.request_id],
            )
            for output in self._scheduler.abort(reasons)
        ]

    def _reason(self, report: RequestReport) -> str:
        if report.position is None or report.wait is None:
            why = "the scheduling policy never gives it its turn"
        else:
            why = report.wait.text
        return f"can never run: {why}, and no step advanced in {self._max_stalled_steps} tries"
