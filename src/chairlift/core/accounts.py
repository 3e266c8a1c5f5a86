"""What a computed step means for one request: tokens accepted, tokens counted, its output."""

from __future__ import annotations

from collections.abc import Callable

from chairlift.core.request import Request
from chairlift.core.scheduler_output import ModelRunnerOutput, ScheduledRequest
from chairlift.outputs import FinishReason, StepOutput, TokenLogprob


class TokenAccounts:
    """Moves requests on by what was computed for them, and counts each token once.

    Args:
        on_service: Told of a request and its newly computed prompt and output tokens.
    """

    def __init__(self, on_service: Callable[[Request, int, int], None]) -> None:
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self._on_service = on_service

    def take_in(
        self, request: Request, row: ScheduledRequest, result: ModelRunnerOutput, now_s: float
    ) -> StepOutput | None:
        """Take in one row of a step; ``None`` if there is nothing to tell anybody.

        A finish reason in the output means that the request has ended.
        """
        request_id = row.request_id
        if result.errors and request_id in result.errors:
            error = result.errors[request_id]
            return StepOutput(request_id, finish_reason=FinishReason.ERROR, error=error)
        if row.num_computed_tokens < request.num_prompt_tokens:
            self._count_prompt_tokens(request, row)
        request.num_computed_tokens = row.num_computed_tokens + row.num_scheduled_tokens
        prompt_logprobs = result.prompt_logprobs.get(request_id, ())
        if not row.yields_token:
            return _prompt_output(request, prompt_logprobs, now_s)
        token_ids, finish_reason, stop_reason = request.accept(result.sampled_token_ids[request_id])
        self.num_generation_tokens += len(token_ids)
        self._on_service(request, 0, len(token_ids))
        is_first = request.first_token_s == 0.0
        if is_first:
            request.first_token_s = now_s
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

    def _count_prompt_tokens(self, request: Request, row: ScheduledRequest) -> None:
        """Prompt tokens count when they are first computed, not after a preemption."""
        if request.num_preemptions == 0:
            left = request.num_prompt_tokens - row.num_computed_tokens
            num_tokens = min(left, row.num_scheduled_tokens)
            self.num_prompt_tokens += num_tokens
            self._on_service(request, num_tokens, 0)


def _prompt_output(
    request: Request, prompt_logprobs: tuple[TokenLogprob, ...], now_s: float
) -> StepOutput | None:
    """A prompt has been computed further and no token sampled."""
    is_done = request.only_scores_prompt and request.num_computed_tokens == request.num_tokens
    if not (is_done or prompt_logprobs):
        return None
    return StepOutput(
        request.request_id,
        finish_reason=FinishReason.LENGTH if is_done else None,
        prompt_logprobs=prompt_logprobs,
        num_cached_tokens=request.num_cached_tokens,
        timings=request.timings(now_s) if is_done else None,
    )
