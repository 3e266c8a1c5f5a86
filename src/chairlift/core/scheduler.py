"""The scheduler: decides at every step which requests run and how many tokens each gets.

There is no prefill phase and no decode phase. A request has tokens (prompt and output so far) of
which the leading ``num_computed_tokens`` have their KV in the cache. Each step hands out tokens so
that computed catches up with known:

    tokens for a request = min(num_tokens - num_computed_tokens, what is left of the step's budget)

Running requests come first, then the others in the order of the policy (a preempted request before
its equals that never ran), under three limits: ``max_num_seqs`` requests,
``max_num_batched_tokens`` tokens, and the KV blocks of the pool. A request whose tokens are all
computed samples its next token in that step. When a running request finds no block, the last one in
the policy's order is preempted: it loses its own and returns later, with what is left of its KV.

Why nothing wedges: no request is admitted that could not finish in an empty pool (``EngineLimits``
is the one bound, shared with the validator). A request is preempted at most ``max_preemptions``
times. After that it is first in the line, and nobody else starts before those that run have left
enough blocks for all it may still need; it takes these at once, and nobody can take them from it.
So each running request ends in a bounded number of steps or is preempted for one that does.

Why nothing starves: who lacks blocks lets later requests pass, at most ``max_head_passes`` of them;
long prompts share the step's tokens with those behind them; and each policy bounds the wait of
whoever it puts last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.accounts import TokenAccounts
from chairlift.core.batching import make_batching
from chairlift.core.explain import Explainer
from chairlift.core.kv_cache_manager import KVCacheManager
from chairlift.core.line import Line
from chairlift.core.pacing import Pacing
from chairlift.core.policies import make_policy
from chairlift.core.preemption import PreemptionChooser, last_in_order, requests_to_displace
from chairlift.core.prefill_share import hand_out_rest, prefill_share
from chairlift.core.request import Request, RequestStatus
from chairlift.core.scheduler_output import (
    ModelRunnerOutput,
    NewRequest,
    ScheduledRequest,
    SchedulerOutput,
)
from chairlift.core.scheduler_stats import SchedulerStats, scheduler_stats
from chairlift.core.start_forecast import StartForecast
from chairlift.core.step_cost import StepCost
from chairlift.core.tenant_limits import TenantLimits
from chairlift.core.watermark import Watermark
from chairlift.errors import ContextLengthError
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, RequestReport, StepOutput

_MAX_PASSED_IN_A_STEP = 8
"""Requests without room that are passed over in one step: bounds the cost of the step."""


class Scheduler:
    """Owns all requests, from :meth:`add_request` to their last :class:`StepOutput`.

    One thread calls it, in turns: ``schedule``, (the runner executes), ``update``, and feeds
    ``step_cost``, which knows what steps cost.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        limits: EngineLimits,
        *,
        enable_prefix_caching: bool = True,
        step_cost: StepCost | None = None,
    ) -> None:
        self._config = config
        self._limits = limits
        self._batching = make_batching(config)
        self.kv_cache = KVCacheManager(
            limits.num_kv_blocks,
            limits.block_size,
            enable_prefix_caching=enable_prefix_caching,
            num_swap_slots=limits.num_swap_blocks,
            awaits_equal_prompts=config.batching == "continuous",
        )
        self._requests: dict[str, Request] = {}
        self._policy = make_policy(config, self.kv_cache.cached_tokens)
        self._tenant_limits = TenantLimits(config.tenants)
        self._line = Line(self._policy, config, self._tenant_limits)
        self.step_cost = step_cost or StepCost()
        self._pacing = Pacing(config, self.step_cost)
        self._forecast = StartForecast(config, self._pacing, self.step_cost, limits.block_size)
        self._running: list[Request] = []  # in the policy's order
        self._prefilling: dict[str, Request] = {}  # running, with more than one token to compute
        self._num_arrived = 0
        self._finished_ids: list[str] = []  # the runner has not been told yet
        self._known_to_runner: set[str] = set()
        self._watermark = Watermark(limits.num_kv_blocks)
        self._preemption = PreemptionChooser(config, limits, self.step_cost)
        self._step = 0
        self._num_preemptions = 0
        self._accounts = TokenAccounts(self._policy.served)
        self._explainer = Explainer(
            config, self._line, self.kv_cache, self._tenant_limits, self._pacing, self._num_reserved
        )

    @property
    def has_work(self) -> bool:
        """Some request has not ended, or the runner has not been told of one that has."""
        return bool(self._requests or self._finished_ids)

    def add_request(self, core_request: CoreRequest) -> None:
        """Put a request at the end of the waiting queue.

        Raises:
            ContextLengthError: It could not finish in an empty pool.
            ValueError: A live request has the same id.
        """
        request = Request(core_request, self._limits.max_model_len, self._num_arrived)
        max_tokens = request.max_num_tokens - request.num_prompt_tokens
        if max_tokens < 0 or not self._limits.fits(request.num_prompt_tokens, max_tokens):
            raise ContextLengthError(
                f"request {request.request_id} has {request.num_prompt_tokens} prompt tokens and "
                f"may grow by {max_tokens}, but at most {self._limits.max_total_tokens} fit"
            )
        if request.request_id in self._requests:
            raise ValueError(f"request id {request.request_id} is in use")
        request.keeps_blocks = self._config.max_preemptions == 0
        self._num_arrived += 1
        self._requests[request.request_id] = request
        self._explainer.log.queued(request)
        self._policy.arrived(request)
        self._line.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[StepOutput]:
        """End requests from outside, whatever they are doing; unknown ids are ignored."""
        outputs = []
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None:
                self._finish(request, FinishReason.ABORT)
                outputs.append(StepOutput(request_id, finish_reason=FinishReason.ABORT))
        return self._batching.release(outputs, self._num_boarded()) if outputs else []

    def schedule(self, now_s: float) -> SchedulerOutput:
        """Plan the next step. ``now_s`` is on the clock of the requests' arrival times."""
        plan = SchedulerOutput(self._step, [], finished_request_ids=self._finished_ids)
        self.kv_cache.begin_step(plan)
        self._finished_ids = []
        self._step += 1
        self._explainer.log.now_s = now_s
        displaced = self._displace(plan, now_s)
        if self._policy.reorders:
            self._policy.order_running(self._running)
        limits = self._pacing.plan(self._running, self._prefilling)
        budget = limits.num_tokens
        num_boarding = min(len(self._line), limits.num_seqs - len(self._running))
        share = prefill_share(budget, len(self._running), len(self._prefilling), num_boarding)
        budget = self._schedule_running(plan, budget, share)
        if len(plan.preempted_request_ids) == len(displaced):
            budget = self._schedule_line(plan, budget, share, now_s, displaced)
        else:
            self._watermark.rise()
        if budget > 0 and share < limits.num_tokens:
            hand_out_rest(plan.scheduled, self._prefilling, budget)
        self._explainer.planned(plan, self._running, self._prefilling, budget)
        return plan

    def _schedule_running(self, plan: SchedulerOutput, budget: int, share: int) -> int:
        """Give running requests their tokens, in order; returns what is left of the budget."""
        running, scheduled, prefilling = self._running, plan.scheduled, self._prefilling
        prompt_budget = budget - (len(running) - len(prefilling))  # a token for each decode is kept
        index = 0
        while index < len(running) and budget > 0:
            request = running[index]
            index += 1
            start = request.num_computed_tokens
            num_tokens = len(request.token_ids) - start
            if prefilling and request.request_id in prefilling:
                num_tokens = min(num_tokens, share, prompt_budget)
                if num_tokens <= 0:
                    continue
                prompt_budget -= num_tokens
            end = start + num_tokens
            new_block_ids: tuple[int, ...] = ()
            if end > request.num_slots:
                grown = self._grow(request, end, plan)
                if grown is None:
                    index -= 1  # it runs no more; who keeps its blocks may come behind it
                    continue
                new_block_ids = grown
            budget -= num_tokens
            yields = end == len(request.token_ids) and not request.only_scores_prompt
            row = (request.request_id, start, num_tokens, new_block_ids, False, yields)
            scheduled.append(ScheduledRequest(*row))
        return budget

    def _grow(
        self, request: Request, num_tokens: int, plan: SchedulerOutput
    ) -> tuple[int, ...] | None:
        """Get a running request the blocks for its tokens, taking them from the last in order.

        Returns:
            The new blocks, or ``None`` if the request was itself the last and is preempted.
        """
        while (new_block_ids := self.kv_cache.grow(request, num_tokens)) is None:
            victim = last_in_order(self._running) or request
            self._preempt(victim, plan, request, "kv_blocks")
            if victim is request:
                return None
        return new_block_ids

    def _displace(self, plan: SchedulerOutput, now_s: float) -> list[Request]:
        """Make room for the next request, if running ones must give way to it and that helps.

        Takes slot and blocks from the last in order, no more of them than needed; returns those.
        """
        last = last_in_order(self._running)
        if last is None or self._config.batching != "continuous":
            return []
        request = self._line.next(now_s, (), self._running)
        if request is None or not self._policy.gives_way(request, last):
            return []
        if self.kv_cache.awaits_prefix(request):
            return []
        victims = requests_to_displace(
            request,
            reversed(self._running),
            self._policy,
            self.kv_cache,
            needs_slot=len(self._running) >= self._pacing.limits.num_seqs,
            num_missing_blocks=self.kv_cache.num_missing_blocks(
                request, self._num_reserved(request)
            ),
        )
        for victim in victims:
            self._preempt(victim, plan, request, "priority")
        return victims

    def _schedule_line(
        self, plan: SchedulerOutput, budget: int, share: int, now_s: float, displaced: list[Request]
    ) -> int:
        """Start or bring back requests in the policy's order; returns what is left of the budget.

        Ends at the first that finds no slot. One that has never run and finds no blocks lets later
        ones pass, a bounded number of times; one that was preempted lets nobody pass. Those just
        ``displaced`` do not return at once.
        """
        may_board = self._batching.num_boarding(
            now_s, len(self._running), self._line.num_new, self._line.oldest_wait_s(now_s)
        )
        num_boarded = 0
        passed = [request for request in displaced if request.keeps_blocks]
        while budget > 0 and len(self._running) < self._pacing.limits.num_seqs:
            request = self._line.next(now_s, passed, self._running)
            if request is None or request in displaced:
                break
            was_preempted = request.status is RequestStatus.PREEMPTED
            if not was_preempted and num_boarded == may_board:
                break
            num_tokens = self._board(request, plan, min(budget, share), now_s)
            if num_tokens is not None:
                budget -= num_tokens
                num_boarded += not was_preempted
                for other in passed:
                    other.num_times_passed += 1
                if not all(map(self._line.lets_others_pass, passed)):
                    break
            elif self._line.lets_others_pass(request) and len(passed) < _MAX_PASSED_IN_A_STEP:
                passed.append(request)
            else:
                break
        self._batching.boarded(num_boarded)
        return budget

    def _num_reserved(self, request: Request) -> int:
        return self._watermark.num_reserved(request, len(self._running))

    def _board(
        self, request: Request, plan: SchedulerOutput, most: int, now_s: float
    ) -> int | None:
        """Move a request from the line into the running set if its blocks are there.

        Returns:
            The tokens it gets in this step, at most ``most``, or ``None`` if it stays in the line.
        """
        num_computed = self.kv_cache.start(request, self._num_reserved(request))
        if num_computed is None:
            return None
        self._line.remove(request)
        if request.status is RequestStatus.WAITING:
            request.scheduled_s = request.scheduled_s or now_s
            request.num_cached_tokens = num_computed
        if request.request_id not in self._known_to_runner:
            self._known_to_runner.add(request.request_id)
            plan.new_requests.append(NewRequest(request.core_request))
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_computed
        self._running.append(request)
        self._policy.order_running(self._running)
        self._prefilling[request.request_id] = request
        num_tokens = min(request.num_tokens - num_computed, most)
        is_whole = num_computed + num_tokens == request.num_tokens
        yields = is_whole and not request.only_scores_prompt
        blocks = self.kv_cache.block_ids(request)
        row = (request.request_id, num_computed, num_tokens, blocks, True, yields)
        plan.scheduled.append(ScheduledRequest(*row))
        return num_tokens

    def _preempt(self, request: Request, plan: SchedulerOutput, by: Request, why: str) -> None:
        """Take slot and blocks of a running request; its tokens stay."""
        how = self._preemption.choose(request)
        self._running.remove(request)
        self.kv_cache.leave(request, is_swapped=how.is_swapped)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.keeps_blocks = request.num_preemptions >= self._config.max_preemptions
        self._prefilling.pop(request.request_id, None)
        self._num_preemptions += 1
        self._line.add(request)
        plan.preempted_request_ids.append(request.request_id)
        self._explainer.log.preempted(request, how, by, why)

    def update(
        self, plan: SchedulerOutput, result: ModelRunnerOutput, now_s: float
    ) -> list[StepOutput]:
        """Take in what the runner computed; returns what each request gets out of the step.

        Requests aborted since ``plan`` was made are skipped, whatever was computed for them.
        """
        if result.copies_failed:
            self.kv_cache.copies_failed(plan)
        outputs = []
        some_ended = False
        for row in plan.scheduled:
            request = self._requests.get(row.request_id)
            if request is None:
                continue
            output = self._accounts.take_in(request, row, result, now_s)
            if row.yields_token:
                self._prefilling.pop(row.request_id, None)
            if output is None or output.error is None:
                self.kv_cache.record_computed(request)
            if output is not None:
                outputs.append(output)
                if output.finish_reason is not None:
                    self._explainer.log.now_s = now_s
                    self._forget(request, output.finish_reason)
                    some_ended = True
        if some_ended:
            self._running = [r for r in self._running if r.status is RequestStatus.RUNNING]
        return self._batching.release(outputs, self._num_boarded())

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """End a request in any state."""
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        else:
            self._line.remove(request)
        self._forget(request, reason)

    def _forget(self, request: Request, reason: FinishReason) -> None:
        """Free what a request holds. The caller takes it out of its queue."""
        if request.status is RequestStatus.RUNNING:
            self._watermark.fall()
            self._forecast.ended(request)
        request.status = RequestStatus.FINISHED
        self.kv_cache.free(request)
        self._policy.left(request)
        self._prefilling.pop(request.request_id, None)
        self._explainer.log.finished(request, reason)
        del self._requests[request.request_id]
        if request.request_id in self._known_to_runner:
            self._known_to_runner.remove(request.request_id)
            self._finished_ids.append(request.request_id)

    def _num_boarded(self) -> int:
        return len(self._running) + self._line.num_preempted

    def next_wakeup_s(self, now_s: float) -> float | None:
        """Seconds after which an otherwise idle engine should schedule again, if at all."""
        if self._num_boarded():
            return 0.0
        return self._batching.wait_s(len(self._line), self._line.oldest_wait_s(now_s))

    def has_waited(self, request_id: str) -> bool:
        """Whether a request waits and has never run."""
        request = self._requests.get(request_id)
        return request is not None and request.status is RequestStatus.WAITING

    def stats(self) -> SchedulerStats:
        """Gauges and counters of this moment."""
        counts = len(self._running), len(self._line), self._num_preemptions
        available, now_s = self.kv_cache.pool.num_available, self._explainer.log.now_s
        delays = self._forecast.delays(self._requests.values(), self._policy, available, now_s)
        return scheduler_stats(*counts, self.kv_cache, self._accounts, delays)

    def explain(self, is_wanted: Callable[[str], bool] | None = None) -> list[RequestReport]:
        """What there is to say of requests, as :meth:`Explainer.reports`."""
        return self._explainer.reports(self._requests.values(), self._running, is_wanted)
