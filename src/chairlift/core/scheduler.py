"""The scheduler: decides at every step which requests run and how many tokens each gets.

There is no prefill phase and no decode phase. A request has tokens (prompt and output so far) of
which the leading ``num_computed_tokens`` have their KV in the cache. Each step hands out tokens so
that computed catches up with known:

    tokens for a request = min(num_tokens - num_computed_tokens, what is left of the step's budget)

Running requests come first, then preempted ones, then waiting ones in order of arrival, under three
limits: ``max_num_seqs`` requests, ``max_num_batched_tokens`` tokens, and the KV blocks of the pool.
A request whose tokens are all computed samples its next token in that step. When a running request
finds no block, the one that arrived last loses its own and returns later (recompute preemption).

Why nothing wedges: no request is admitted that could not finish in an empty pool (``EngineLimits``
is the one bound, shared with the validator), and the running request that arrived first is never
preempted for another. So it always ends, and then the next one is first.
"""

from __future__ import annotations

from collections.abc import Iterable

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.batching import make_batching
from chairlift.core.kv_cache_manager import KVCacheManager
from chairlift.core.request import Request, RequestStatus
from chairlift.core.request_queue import RequestQueue
from chairlift.core.scheduler_output import (
    ModelRunnerOutput,
    NewRequest,
    ScheduledRequest,
    SchedulerOutput,
)
from chairlift.core.scheduler_stats import SchedulerStats
from chairlift.errors import ContextLengthError
from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, StepOutput, TokenLogprob


class Scheduler:
    """Owns all requests, from :meth:`add_request` to their last :class:`StepOutput`.

    One thread calls it, in turns: ``schedule``, (the runner executes), ``update``.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        limits: EngineLimits,
        *,
        enable_prefix_caching: bool = True,
    ) -> None:
        self._config = config
        self._limits = limits
        self._batching = make_batching(config)
        self.kv_cache = KVCacheManager(
            limits.num_kv_blocks, limits.block_size, enable_prefix_caching=enable_prefix_caching
        )
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []  # in order of arrival
        self._preempted = RequestQueue()
        self._waiting = RequestQueue()
        self._finished_ids: list[str] = []  # the runner has not been told yet
        self._known_to_runner: set[str] = set()
        # Room kept for running requests to grow into when others are admitted, so that admission
        # does not cause a preemption at the next step: one block in a hundred.
        self._watermark_blocks = limits.num_kv_blocks // 100
        self._step = 0
        self._num_preemptions = 0
        self._num_prompt_tokens = 0
        self._num_generation_tokens = 0

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
        request = Request(core_request, self._limits.max_model_len)
        max_tokens = request.max_num_tokens - request.num_prompt_tokens
        if not self._limits.fits(request.num_prompt_tokens, max_tokens):
            raise ContextLengthError(
                f"request {request.request_id} has {request.num_prompt_tokens} prompt tokens and "
                f"may grow by {max_tokens}, but at most {self._limits.max_total_tokens} fit"
            )
        if request.request_id in self._requests:
            raise ValueError(f"request id {request.request_id} is in use")
        self._requests[request.request_id] = request
        self._waiting.append(request)

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
        plan = SchedulerOutput(
            step=self._step,
            scheduled=[],
            finished_request_ids=self._finished_ids,
        )
        self._finished_ids = []
        self._step += 1
        budget = self._schedule_running(plan, self._config.max_num_batched_tokens)
        if not plan.preempted_request_ids:
            budget = self._schedule_preempted(plan, budget)
            if not self._preempted:
                self._schedule_waiting(plan, budget, now_s)
        return plan

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Give running requests their tokens, oldest first; returns what is left of the budget."""
        running, scheduled = self._running, plan.scheduled
        index = 0
        while index < len(running) and budget > 0:
            request = running[index]
            index += 1
            start, num_known = request.num_computed_tokens, len(request.token_ids)
            end = min(num_known, start + budget)
            new_block_ids: tuple[int, ...] = ()
            if end > request.num_slots:
                grown = self._grow(request, end, plan)
                if grown is None:
                    return budget
                new_block_ids = grown
            budget -= end - start
            yields_token = end == num_known and not request.only_scores_prompt
            scheduled.append(
                ScheduledRequest(
                    request.request_id, start, end - start, new_block_ids, False, yields_token
                )
            )
        return budget

    def _grow(
        self, request: Request, num_tokens: int, plan: SchedulerOutput
    ) -> tuple[int, ...] | None:
        """Get a running request the blocks for its tokens, taking them from the latest arrivals.

        Returns:
            The new blocks, or ``None`` if the request was itself the latest and is preempted.
        """
        while (new_block_ids := self.kv_cache.grow(request, num_tokens)) is None:
            victim = self._running.pop()
            self._preempt(victim, plan)
            if victim is request:
                return None
        return new_block_ids

    def _schedule_preempted(self, plan: SchedulerOutput, budget: int) -> int:
        """Bring back preempted requests, oldest first, while all that each needs fits."""
        while budget > 0 and (request := self._preempted.head()):
            # Each running request, this one included, may need one more block at the next step;
            # with that much room left it does not lose its blocks again at once.
            num_reserved_blocks = len(self._running) + 1 if self._running else 0
            num_tokens = self._board(request, plan, budget, num_reserved_blocks)
            if num_tokens is None:
                break
            self._preempted.remove(request)
            budget -= num_tokens
        return budget

    def _schedule_waiting(self, plan: SchedulerOutput, budget: int, now_s: float) -> None:
        """Start waiting requests in order of arrival, until a limit stops the first of them."""
        if not self._waiting:
            return
        may_board = self._batching.num_boarding(
            len(self._running), len(self._waiting), self._oldest_wait_s(now_s)
        )
        num_boarded = 0
        while num_boarded < may_board and budget > 0 and (request := self._waiting.head()):
            num_reserved_blocks = self._watermark_blocks if self._running else 0
            num_tokens = self._board(request, plan, budget, num_reserved_blocks)
            if num_tokens is None:
                break
            self._waiting.remove(request)
            request.scheduled_s = now_s
            request.num_cached_tokens = request.num_computed_tokens
            num_boarded += 1
            budget -= num_tokens
        self._batching.boarded(num_boarded)

    def _board(
        self, request: Request, plan: SchedulerOutput, budget: int, num_reserved_blocks: int
    ) -> int | None:
        """Move a request into the running set if a slot and its blocks are there.

        Args:
            num_reserved_blocks: Blocks that must stay available afterwards.

        Returns:
            The tokens it gets in this step, or ``None`` if it stays where it is.
        """
        if len(self._running) >= self._config.max_num_seqs:
            return None
        num_computed = self.kv_cache.start(request, num_reserved_blocks)
        if num_computed is None:
            return None
        if request.request_id not in self._known_to_runner:
            self._known_to_runner.add(request.request_id)
            plan.new_requests.append(NewRequest(request.core_request))
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_computed
        self._running.append(request)
        num_tokens = min(request.num_tokens - num_computed, budget)
        plan.scheduled.append(
            ScheduledRequest(
                request.request_id,
                num_computed,
                num_tokens,
                self.kv_cache.block_ids(request),
                True,
                num_computed + num_tokens == request.num_tokens and not request.only_scores_prompt,
            )
        )
        return num_tokens

    def _preempt(self, request: Request, plan: SchedulerOutput) -> None:
        """Take a running request's blocks away; its tokens stay, and it returns before others.

        Its full blocks stay in the prefix cache until somebody needs them.
        """
        self.kv_cache.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._num_preemptions += 1
        self._preempted.push_front(request)
        plan.preempted_request_ids.append(request.request_id)

    def update(
        self, plan: SchedulerOutput, result: ModelRunnerOutput, now_s: float
    ) -> list[StepOutput]:
        """Take in what the runner computed; returns what each request gets out of the step.

        Requests aborted since ``plan`` was made are skipped, whatever was computed for them.
        """
        outputs = []
        some_ended = False
        for row in plan.scheduled:
            request = self._requests.get(row.request_id)
            if request is None:
                continue
            output = self._update_request(request, row, result, now_s)
            if output is not None:
                outputs.append(output)
                some_ended |= output.finish_reason is not None
        if some_ended:
            self._running = [r for r in self._running if r.status is RequestStatus.RUNNING]
        return self._batching.release(outputs, self._num_boarded())

    def _update_request(
        self, request: Request, row: ScheduledRequest, result: ModelRunnerOutput, now_s: float
    ) -> StepOutput | None:
        request_id = row.request_id
        if result.errors and request_id in result.errors:
            self._forget(request, FinishReason.ERROR)
            error = result.errors[request_id]
            return StepOutput(request_id, finish_reason=FinishReason.ERROR, error=error)
        if row.num_computed_tokens < request.num_prompt_tokens:
            self._count_prompt_tokens(request, row)
        request.num_computed_tokens = row.num_computed_tokens + row.num_scheduled_tokens
        self.kv_cache.record_computed(request)
        prompt_logprobs = result.prompt_logprobs.get(request_id, ())
        if not row.yields_token:
            return self._update_prompt(request, prompt_logprobs, now_s)
        token_ids, finish_reason, stop_reason = self._accept(
            request, result.sampled_token_ids[request_id]
        )
        is_first = request.first_token_s == 0.0
        if is_first:
            request.first_token_s = now_s
        if finish_reason is not None:
            self._forget(request, finish_reason)
        logprobs = result.logprobs.get(request_id, ())
        return StepOutput(
            request_id,
            token_ids,
            finish_reason,
            stop_reason,
            logprobs[: len(token_ids)],
            prompt_logprobs,
            request.num_cached_tokens,
            request.timings(now_s) if is_first or finish_reason is not None else None,
        )

    def _update_prompt(
        self, request: Request, prompt_logprobs: tuple[TokenLogprob, ...], now_s: float
    ) -> StepOutput | None:
        """A prompt has been computed further and no token sampled."""
        is_done = request.only_scores_prompt and request.num_computed_tokens == request.num_tokens
        if is_done:
            self._forget(request, FinishReason.LENGTH)
        if not (is_done or prompt_logprobs):
            return None
        return StepOutput(
            request.request_id,
            finish_reason=FinishReason.LENGTH if is_done else None,
            prompt_logprobs=prompt_logprobs,
            num_cached_tokens=request.num_cached_tokens,
            timings=request.timings(now_s) if is_done else None,
        )

    def _accept(
        self, request: Request, sampled: tuple[int, ...]
    ) -> tuple[tuple[int, ...], FinishReason | None, int | None]:
        """Append sampled tokens up to the one that ends the request, if one does."""
        known = request.token_ids
        for count, token_id in enumerate(sampled, start=1):
            known.append(token_id)
            self._num_generation_tokens += 1
            if token_id in request.stop_token_ids:
                is_eos = token_id not in request.core_request.sampling_params.stop_token_ids
                return sampled[:count], FinishReason.STOP, None if is_eos else token_id
            if len(known) >= request.max_num_tokens:
                return sampled[:count], FinishReason.LENGTH, None
        return sampled, None, None

    def _count_prompt_tokens(self, request: Request, row: ScheduledRequest) -> None:
        """Prompt tokens count once, when they are first computed, not after a preemption."""
        if request.num_preemptions == 0:
            left = request.num_prompt_tokens - row.num_computed_tokens
            self._num_prompt_tokens += max(0, min(left, row.num_scheduled_tokens))

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """End a request in any state."""
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        elif request.status is RequestStatus.PREEMPTED:
            self._preempted.remove(request)
        else:
            self._waiting.remove(request)
        self._forget(request, reason)

    def _forget(self, request: Request, reason: FinishReason) -> None:
        """Free what a request holds. The caller takes it out of its queue."""
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        self.kv_cache.free(request)
        del self._requests[request.request_id]
        if request.request_id in self._known_to_runner:
            self._known_to_runner.remove(request.request_id)
            self._finished_ids.append(request.request_id)

    def _num_boarded(self) -> int:
        return len(self._running) + len(self._preempted)

    def _oldest_wait_s(self, now_s: float) -> float:
        head = self._waiting.head()
        return 0.0 if head is None else now_s - head.core_request.arrival_time_s

    def next_wakeup_s(self, now_s: float) -> float | None:
        """Seconds after which an otherwise idle engine should schedule again, if at all."""
        if self._num_boarded():
            return 0.0
        return self._batching.wait_s(len(self._waiting), self._oldest_wait_s(now_s))

    def reset_prefix_cache(self) -> int:
        """Forget all cached blocks that nobody holds; returns how many those were."""
        return self.kv_cache.pool.forget_cached()

    def stats(self) -> SchedulerStats:
        """Gauges and counters of this moment."""
        pool, prefix = self.kv_cache.pool, self.kv_cache.prefix_counts
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting) + len(self._preempted),
            num_live_blocks=pool.num_live,
            num_cached_blocks=pool.num_cached,
            num_free_blocks=pool.num_free,
            num_preemptions_total=self._num_preemptions,
            prompt_tokens_total=self._num_prompt_tokens,
            generation_tokens_total=self._num_generation_tokens,
            prefix_cache_queried_tokens=prefix.num_queried_tokens,
            prefix_cache_hit_tokens=prefix.num_hit_tokens,
            prefix_cache_recovered_tokens=prefix.num_recovered_tokens,
        )
