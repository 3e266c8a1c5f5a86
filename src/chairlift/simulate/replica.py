"""One engine under a virtual clock: the product's Scheduler, with steps that take modelled time.

Most steps of a busy engine are alike: the same requests get one token each, and nobody comes, goes
or is made to wait. Where that is certain, a whole stretch of such steps is run in one
``Scheduler.update()``: the rows of the plan are lengthened by the further tokens, as a row with
accepted speculative tokens would be. The Scheduler's state afterwards is the one that single steps
would have led to, and so is every later decision (``tests/unit/simulate`` compares the two).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import islice

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.queue_deadlines import QueueDeadlines
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.core.scheduler_stats import SchedulerStats
from chairlift.core.step_size import StepSize, step_size
from chairlift.engine.cost_rehearsal import learn_costs, needs_costs
from chairlift.engine.tenants import Tenant
from chairlift.inputs import CoreRequest
from chairlift.outputs import StepOutput
from chairlift.simulate.request_log import Refusal, RequestLog
from chairlift.simulate.simulated_runner import SAMPLED_TOKEN_ID
from chairlift.simulate.stretch import (
    is_stuck,
    lengthened,
    steps_until_one_ends,
    steps_with_blocks,
    total_length,
)
from chairlift.simulate.tenant_books import TenantBooks


@dataclass(frozen=True, slots=True)
class ReplicaSetup:
    """What a simulated engine is.

    Attributes:
        enable_prefix_caching: As in the product. Without prompts that share a start it changes
            nothing but what a preempted request finds again, and it costs the simulation its
            stretches: blocks must then be handed out one by one.
        tenants: With their quotas; what the scheduler has to know of them is in its own config.
        use_stretches: Run steps that are alike together. Off, every step is run by itself.
    """

    scheduler: SchedulerConfig
    limits: EngineLimits
    cost: CostModel
    enable_prefix_caching: bool = False
    tenants: tuple[Tenant, ...] = ()
    use_stretches: bool = True


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request on its way to a replica: its number in the workload, and what the engine sees."""

    number: int
    core_request: CoreRequest
    num_total_tokens: int


class Replica:
    """Runs one engine. Requests are handed over in order of arrival, ahead of time or in time."""

    def __init__(self, setup: ReplicaSetup, log: RequestLog) -> None:
        self._setup = setup
        self._log = log
        self._scheduler = Scheduler(
            setup.scheduler, setup.limits, enable_prefix_caching=setup.enable_prefix_caching
        )
        self._learns = needs_costs(setup.scheduler) or setup.limits.num_swap_blocks > 0
        if self._learns:
            learn_costs(self._scheduler.step_cost, setup.cost, setup.scheduler, setup.limits)
        self._deadlines = QueueDeadlines(setup.scheduler.max_queue_time_s)
        self._books = TenantBooks(setup.tenants)
        self._judges_arrivals = bool(setup.limits.target_ttft_s) or not self._books.is_empty
        self._is_steady = _is_steady(setup)
        self._is_continuous = setup.scheduler.batching == "continuous"
        self._is_fcfs = setup.scheduler.scheduling_policy == "fcfs"
        self._coming: deque[SimulatedRequest] = deque()
        self._live: dict[str, SimulatedRequest] = {}
        self._final_lengths: dict[str, int] = {}
        self._first_token_s: dict[str, float] = {}
        self._last_token_s: dict[str, float] = {}
        self._now_s = 0.0
        self._num_steps = 0
        self._num_ended_last = 0

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return self._num_steps

    @property
    def now_s(self) -> float:
        """When its last step ended."""
        return self._now_s

    def stats(self) -> SchedulerStats:
        """What its scheduler counts."""
        return self._scheduler.stats()

    def load_at(self, moment_s: float) -> int:
        """Requests that are there at a moment to which :meth:`advance` has brought it."""
        still_there = self._num_ended_last if self._now_s > moment_s else 0
        return len(self._live) + len(self._coming) + still_there

    def add(self, request: SimulatedRequest) -> None:
        """Hand over a request, which is there from its arrival time on."""
        self._coming.append(request)

    def advance(self, until_s: float) -> None:
        """Run every step that starts before ``until_s``.

        The last of them may be part of a stretch that goes on: then nobody who comes later could
        have taken part in it, and nobody ends in it before its own end.
        """
        while True:
            self._take_in()
            if self._live:
                if self._now_s >= until_s:
                    return
                self._step(until_s)
            elif self._coming and self._next_arrival_s() < until_s:
                self._now_s = self._next_arrival_s()
            else:
                return

    def _next_arrival_s(self) -> float:
        return self._coming[0].core_request.arrival_time_s if self._coming else math.inf

    def _take_in(self) -> None:
        """Hand the Scheduler who has arrived by now."""
        while self._coming and self._next_arrival_s() <= self._now_s:
            request = self._coming.popleft()
            refusal = self._refusal(request)
            if refusal is not None:
                self._log.refuse(request.number, refusal)
                continue
            request_id = request.core_request.request_id
            self._books.accepted(request.core_request)
            self._scheduler.add_request(request.core_request)
            self._deadlines.add(request.core_request)
            self._live[request_id] = request
            self._final_lengths[request_id] = request.num_total_tokens

    def _refusal(self, request: SimulatedRequest) -> Refusal | None:
        """What the server would say: no quota left, never fits, too many wait, starts too late."""
        core_request, limits = request.core_request, self._setup.limits
        if self._books.is_refused(core_request):
            return Refusal.QUOTA
        num_prompt = len(core_request.prompt_token_ids)
        if not limits.fits(num_prompt, request.num_total_tokens - num_prompt):
            return Refusal.ENGINE
        if len(self._live) >= limits.max_num_waiting or limits.target_ttft_s:
            stats = self._scheduler.stats()
            is_full = stats.num_waiting >= limits.max_num_waiting
            delay = stats.start_delays.of(core_request.tenant, core_request.priority)
            if is_full or 0.0 < limits.target_ttft_s < delay.start_s:
                return Refusal.ENGINE
        return None

    def _end_overdue(self) -> None:
        """End requests that have waited for their start longer than they may."""
        overdue = self._deadlines.overdue(self._now_s, self._scheduler.has_waited)
        self._books.came(self._scheduler.abort(overdue))
        for request_id in overdue:
            self._log.refuse(self._live.pop(request_id).number, Refusal.ENGINE)
            del self._final_lengths[request_id]

    def _step(self, until_s: float) -> None:
        """Run a step, or a stretch of steps that are alike."""
        self._end_overdue()
        plan = self._scheduler.schedule(self._now_s)
        self._num_ended_last = 0
        if not plan.scheduled:
            self._wait(plan, until_s)
            return
        size, started_s = step_size(plan), self._now_s
        self._now_s += self._setup.cost.seconds(size)
        if self._learns:
            self._scheduler.step_cost.observe(size, self._now_s - started_s)
        self._now_s += plan.num_copies * self._setup.limits.swap_block_s
        first_end_s = self._now_s
        num_more = self._run_alike(plan, size, until_s)
        if self._is_continuous:
            self._note_tokens(plan, started_s, first_end_s)
        self._num_steps += 1 + num_more
        sampled = (SAMPLED_TOKEN_ID,) * (1 + num_more)
        result = ModelRunnerOutput({row.request_id: sampled for row in plan.scheduled if row[5]})
        plan = lengthened(plan, num_more) if num_more else plan
        outputs = self._scheduler.update(plan, result, self._now_s)
        self._books.came(outputs)
        for output in outputs:
            if output.finish_reason is not None:
                self._end(output)

    def _wait(self, plan: SchedulerOutput, until_s: float) -> None:
        """Nothing can run: let the time pass after which something may."""
        self._scheduler.update(plan, ModelRunnerOutput({}), self._now_s)
        wait_s = self._scheduler.next_wakeup_s(self._now_s)
        wake_s = math.inf if wait_s is None else self._now_s + wait_s
        # At least one representable moment later, or rounding could stop the clock.
        next_s = math.nextafter(self._now_s, math.inf)
        self._now_s = max(next_s, min(wake_s, self._next_arrival_s(), until_s))

    def _run_alike(self, plan: SchedulerOutput, size: StepSize, until_s: float) -> int:
        """Let the steps pass that follow a planned one and are certainly like it.

        Returns:
            How many there are.
        """
        num_steps, others_matter = self._num_alike(plan, size)
        if num_steps == 1:
            return 0
        cut_s = min(until_s, self._next_arrival_s()) if others_matter else math.inf
        now_s, num_seqs, gaps = self._now_s, size.num_seqs, []
        run = self._setup.cost.decode_run(num_seqs, total_length(plan) + num_seqs)
        for seconds in islice(run, num_steps - 1):
            if now_s >= cut_s:
                break
            now_s += seconds
            gaps.append(seconds)
        if self._is_continuous:
            self._log.add_gaps(gaps, num_seqs)
        self._now_s = now_s
        return len(gaps)

    def _num_alike(self, plan: SchedulerOutput, size: StepSize) -> tuple[int, bool]:
        """Count the steps from this one on that are certainly alike if nobody arrives.

        Returns:
            The count, and whether somebody who arrives meanwhile could board, or must be judged
            by how things are then.
        """
        setup = self._setup
        if not self._is_steady:
            return 1, True
        stats = self._scheduler.stats()
        has_slots = stats.num_running < setup.scheduler.max_num_seqs
        if not size.num_head_rows == size.num_seqs == stats.num_running:
            return 1, True
        if not self._scheduler.kv_cache.left_behind.is_empty:
            return 1, True  # what is left of it depends on when each block is handed out
        if stats.num_waiting and not self._waits_on(plan, has_slots):
            return 1, True
        num_steps = steps_until_one_ends(plan, self._final_lengths)
        num_available = stats.num_free_blocks + stats.num_cached_blocks
        num_steps = steps_with_blocks(plan, num_steps, num_available, setup.limits.block_size)
        may_board = (has_slots and self._is_continuous) or not self._is_fcfs
        return num_steps, may_board or self._judges_arrivals

    def _waits_on(self, plan: SchedulerOutput, has_slots: bool) -> bool:
        """Whoever waits will surely go on waiting until somebody ends.

        Other policies than first come, first served may change their mind as time goes by.
        """
        budget = self._setup.scheduler.max_num_batched_tokens
        return self._is_fcfs and (not has_slots or is_stuck(plan, budget))

    def _note_tokens(self, plan: SchedulerOutput, started_s: float, first_end_s: float) -> None:
        """Write down the gaps before the tokens of the first step of a stretch."""
        last, num_common = self._last_token_s, 0
        for row in plan.scheduled:
            if not row.yields_token:
                continue
            before_s = last.get(row.request_id)
            if before_s == started_s:
                num_common += 1
            elif before_s is None:
                self._first_token_s[row.request_id] = first_end_s
            else:
                self._log.add_gap(first_end_s - before_s, 1)
            last[row.request_id] = self._now_s
        if num_common:
            self._log.add_gap(first_end_s - started_s, num_common)

    def _end(self, output: StepOutput) -> None:
        request_id = output.request_id
        request = self._live.pop(request_id)
        del self._final_lengths[request_id]
        self._num_ended_last += 1
        first_s = self._first_token_s.pop(request_id, self._now_s)
        self._last_token_s.pop(request_id, None)
        scheduled_s = output.timings.scheduled_s if output.timings else math.nan
        self._log.finish(request.number, scheduled_s, first_s, self._now_s)


def _is_steady(setup: ReplicaSetup) -> bool:
    """Whether steps can be run together: no decision but the policy's depends on the time."""
    config = setup.scheduler
    depends_on_time = config.target_itl_s or config.max_queue_time_s
    if depends_on_time or config.scheduler_delay_factor or setup.enable_prefix_caching:
        return False
    return setup.use_stretches
