"""One step after the other: schedule, execute, update."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from time import perf_counter_ns

from chairlift.core.queue_deadlines import QueueDeadlines
from chairlift.core.runner_protocol import ModelRunner
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.core.step_size import step_size
from chairlift.engine.stats import CoreStats, StepTimes
from chairlift.engine.watchdog import Watchdog
from chairlift.errors import EngineDeadError
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, RequestReport, StepOutput
from chairlift.runner.times import RunnerTimes

_LOGGER = logging.getLogger(__name__)
_NS_PER_S = 1e9

StepObserver = Callable[[SchedulerOutput, float], None]
"""Told of a step that computed something: its plan, and the seconds it took as a whole."""

MAX_FAILED_STEPS_IN_A_ROW = 3
"""A failed step fails its own requests, whose blocks are freed; what other requests hold it cannot
have touched. Three in a row, with other requests each, are no fault of the requests any more."""


class EngineCore:
    """Joins the scheduler and a runner; one thread calls it.

    Args:
        scheduler: Owned by the core from here on.
        runner: The same.
        runner_times: What the runner adds its times to.
        clock: Monotonic seconds; the clock of the requests' arrival times.
        max_queue_time_s: How long a request may wait for its start; 0: for ever.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        *,
        runner_times: RunnerTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
        max_queue_time_s: float = 0.0,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._runner_times = runner_times or RunnerTimes()
        self._clock = clock
        self._watchdog = Watchdog(scheduler)
        self._max_queue_time_s = max_queue_time_s
        self._deadlines = QueueDeadlines(max_queue_time_s)
        self._is_idle = True
        self._num_steps = 0
        self._num_failed_in_a_row = 0
        self._last_end_s: float | None = None  # of the last step, if the next follows at once
        self._schedule_ns = 0
        self._update_ns = 0
        self._observer: StepObserver | None = None

    @property
    def has_work(self) -> bool:
        """A step would do something, now or later."""
        return self._scheduler.has_work

    def add_request(self, request: CoreRequest) -> None:
        """Queue a request.

        Raises:
            ContextLengthError: It could not finish in an empty KV pool.
            ValueError: A live request has the same id.
        """
        self._scheduler.add_request(request)
        self._deadlines.add(request)
        self._is_idle = False

    def abort(self, request_ids: Iterable[str]) -> list[StepOutput]:
        """End requests, whatever they are doing; unknown ids are ignored."""
        self._is_idle = False
        return self._scheduler.abort(request_ids)

    def explain(self, is_wanted: Callable[[str], bool] | None) -> list[RequestReport]:
        """Report on requests, as the scheduler does."""
        return self._scheduler.explain(is_wanted)

    def step(self) -> list[StepOutput]:
        """Run one step; returns what each request got out of it.

        Raises:
            EngineDeadError: Steps keep failing; nothing can be computed any more.
        """
        started_ns = perf_counter_ns()
        now_s = self._clock()
        overdue = self._end_overdue(now_s)
        plan = self._scheduler.schedule(now_s)
        self._schedule_ns += perf_counter_ns() - started_ns
        self._is_idle = plan.is_empty
        try:
            result = self._runner.execute(plan)
            self._num_failed_in_a_row = 0
        except Exception as error:
            result = self._fail_step(plan, error)
        executed_ns = perf_counter_ns()
        outputs = overdue + self._scheduler.update(plan, result, self._clock())
        self._update_ns += perf_counter_ns() - executed_ns
        if plan.is_empty:
            self._last_end_s = None
            outputs += self._watchdog.stalled(self._clock())
            return outputs
        self._watchdog.advanced()
        self._num_steps += 1
        self._learn(plan, now_s)
        if self._observer is not None:
            self._observer(plan, (perf_counter_ns() - started_ns) / _NS_PER_S)
        return outputs

    def _end_overdue(self, now_s: float) -> list[StepOutput]:
        """End requests that have waited for their start longer than they may."""
        overdue = self._deadlines.overdue(now_s, self._scheduler.has_waited)
        return [
            StepOutput(
                output.request_id,
                finish_reason=FinishReason.ERROR,
                error=f"it waited {self._max_queue_time_s:g} s for its start (max_queue_time)",
                is_overdue=True,
            )
            for output in self._scheduler.abort(overdue)
        ]

    def _learn(self, plan: SchedulerOutput, started_s: float) -> None:
        """Tell the scheduler what a step took: as long as it is from one end to the next."""
        now_s = self._clock()
        since_s = started_s if self._last_end_s is None else self._last_end_s
        if not plan.num_copies:
            self._scheduler.step_cost.observe(step_size(plan), now_s - since_s)
        self._last_end_s = now_s if self._scheduler.has_work else None

    def observe_steps(self, observer: StepObserver | None) -> None:
        """Tell somebody of every step from now on, or nobody (``None``)."""
        self._observer = observer

    def wait_s(self) -> float | None:
        """Seconds until another step makes sense, new requests aside; ``None``: no step does.

        0 as long as the last step computed something; after one that did not, time has to pass
        (dynamic batching waits for company).
        """
        if not self.has_work:
            return None
        return self._scheduler.next_wakeup_s(self._clock()) if self._is_idle else 0.0

    def stats(self) -> CoreStats:
        """Gauges and counters of this moment."""
        runner = self._runner_times
        return CoreStats(
            self._scheduler.stats(),
            StepTimes(
                num_steps=self._num_steps,
                schedule_s=self._schedule_ns / _NS_PER_S,
                build_s=runner.build_ns / _NS_PER_S,
                forward_s=runner.forward_ns / _NS_PER_S,
                logits_s=runner.logits_ns / _NS_PER_S,
                sample_s=runner.sample_ns / _NS_PER_S,
                update_s=self._update_ns / _NS_PER_S,
                swap_s=runner.swap_ns / _NS_PER_S,
            ),
        )

    def _fail_step(self, plan: SchedulerOutput, error: Exception) -> ModelRunnerOutput:
        """The result of a step whose execution raised: every request in it failed."""
        self._num_failed_in_a_row += 1
        request_ids = [row.request_id for row in plan.scheduled]
        _LOGGER.error(
            "step %d failed with %d requests and %d tokens (%d new, %d finished, %d preempted): %s",
            plan.step,
            len(request_ids),
            sum(row.num_scheduled_tokens for row in plan.scheduled),
            len(plan.new_requests),
            len(plan.finished_request_ids),
            len(plan.preempted_request_ids),
            ", ".join(request_ids[:16]) + (", ..." if len(request_ids) > 16 else ""),
            exc_info=error,
        )
        if self._num_failed_in_a_row >= MAX_FAILED_STEPS_IN_A_ROW:
            raise EngineDeadError(
                f"{self._num_failed_in_a_row} steps in a row failed, the last with "
                f"{type(error).__name__}: {error}"
            ) from error
        message = f"the step that computed this request failed: {type(error).__name__}: {error}"
        errors = dict.fromkeys(request_ids, message)
        return ModelRunnerOutput({}, errors=errors, copies_failed=True)
