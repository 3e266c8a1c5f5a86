"""From what steps did for choices to what requests are told: the one loop on the output side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from chairlift.engine.answers import Answer, Choice
from chairlift.engine.stats import RequestObservations
from chairlift.engine.tenant_usage import TenantTokens, TenantUsage
from chairlift.errors import QueueTimeoutError, RequestFailedError
from chairlift.inputs import GenerateRequest
from chairlift.outputs import FinishReason, RequestOutput, StepOutput
from chairlift.tokenization.tokenizer import Tokenizer


@dataclass(slots=True)
class ProcessedStep:
    """What the outputs of a step mean for requests.

    Attributes:
        news: Answers to be taken with :meth:`OutputProcessor.take`, as keys, each once.
        aborts: Choices that the core must stop computing: a stop string ended them, or another
            choice of their request failed. Ids in the core.
    """

    news: dict[str, None] = field(default_factory=dict)
    aborts: list[str] = field(default_factory=list)


class OutputProcessor:
    """Keeps the answers of all live requests.

    Answers go by a key that the caller chooses, because two clients may use the same request id at
    the same time.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.observations = RequestObservations()
        self._tokenizer = tokenizer
        self._answers: dict[str, Answer] = {}
        self._choices: dict[str, Choice] = {}
        self._tenant_tokens = TenantTokens()

    @property
    def num_live_choices(self) -> int:
        """Choices that have not ended."""
        return len(self._choices)

    def add(
        self, key: str, request: GenerateRequest, core_ids: Sequence[str], *, is_streamed: bool
    ) -> None:
        """Expect outputs for a request.

        Args:
            key: Names the answer; not in use.
            core_ids: Ids of its choices in the engine core, in order.
            is_streamed: Make pieces available as they come, rather than all at the end.
        """
        answer = Answer(key, request, core_ids, self._tokenizer, is_streamed=is_streamed)
        self._answers[key] = answer
        for choice in answer.choices:
            self._choices[choice.core_id] = choice
        self.observations.prompt_tokens.observe(len(request.prompt_token_ids))
        self._tenant_tokens.add_request(request)

    def usage_of(self, tenant: str) -> TenantUsage:
        """What a tenant uses, and has used."""
        return self._tenant_tokens.usage_of(tenant, self._choices.values())

    def process(self, outputs: Iterable[StepOutput], now_s: float) -> ProcessedStep:
        """Take in the outputs of a step; those of choices that are not live are ignored.

        Args:
            now_s: When the step ended, on the engine's clock: the moment of its tokens.
        """
        started_ns = perf_counter_ns()
        processed = ProcessedStep()
        gaps: dict[float, int] = {}
        for output in outputs:
            choice = self._choices.get(output.request_id)
            if choice is None:
                continue
            token_ids = output.token_ids
            if token_ids:
                last_token_s = choice.last_token_s
                choice.last_token_s = now_s
                if last_token_s == 0.0 or len(token_ids) > 1:
                    self._observe_tokens(choice, last_token_s, len(token_ids), gaps)
                else:
                    gaps[last_token_s] = gaps.get(last_token_s, 0) + 1
            if output.timings is not None or output.prompt_logprobs:
                choice.answer.note(output)
            choice.accept(output)
            if choice.finish_reason is not None:
                self._end(choice, output, processed, now_s)
            elif token_ids and choice.answer.is_streamed:
                processed.news[choice.key] = None
        for last_token_s, times in gaps.items():
            self.observations.inter_token_latency_s.observe(now_s - last_token_s, times)
        self.observations.output_ns += perf_counter_ns() - started_ns
        return processed

    def take(self, key: str) -> RequestOutput:
        """What is new in an answer; the answer is forgotten once it is finished.

        Raises:
            KeyError: There is no such answer.
            RequestFailedError: The engine failed the request.
            QueueTimeoutError: It had waited too long for its start.
        """
        started_ns = perf_counter_ns()
        answer = self._answers[key]
        if answer.error is not None:
            del self._answers[key]
            raise _failure(answer, answer.error)
        output = answer.take()
        if output.finished:
            del self._answers[key]
        self.observations.output_ns += perf_counter_ns() - started_ns
        return output

    def live_core_ids(self, request_id: str) -> list[str]:
        """Ids in the core of the choices that have not ended, of all requests of this id."""
        return [
            choice.core_id
            for choice in self._choices.values()
            if choice.answer.request.request_id == request_id
        ]

    def remove(self, key: str) -> list[str]:
        """Forget a request that nobody waits for any more; unknown keys are ignored.

        Returns:
            Ids in the core of its choices that have not ended, to be aborted there.
        """
        answer = self._answers.pop(key, None)
        if answer is None:
            return []
        live = [c for c in answer.choices if self._choices.pop(c.core_id, None)]
        for choice in live:
            self.observations.count_finished(FinishReason.ABORT)
            self._tenant_tokens.add_ended(choice)
        return [choice.core_id for choice in live]

    def _observe_tokens(
        self, choice: Choice, last_token_s: float, num_tokens: int, gaps: dict[float, int]
    ) -> None:
        """Note when a choice's tokens came; gaps are gathered, many being equal in a step."""
        now_s = choice.last_token_s
        if last_token_s == 0.0:
            arrival_s = choice.answer.request.arrival_time_s
            self.observations.time_to_first_token_s.observe(now_s - arrival_s)
        else:
            gaps[last_token_s] = gaps.get(last_token_s, 0) + 1
        if num_tokens > 1:
            gaps[now_s] = gaps.get(now_s, 0) + num_tokens - 1

    def _end(
        self, choice: Choice, output: StepOutput, processed: ProcessedStep, now_s: float
    ) -> None:
        """Close a choice that has its finish reason."""
        del self._choices[choice.core_id]
        observed, answer = self.observations, choice.answer
        observed.count_finished(choice.finish_reason or FinishReason.ERROR)
        self._tenant_tokens.add_ended(choice)
        if output.finish_reason is None:
            answer.note_end(now_s)
            processed.aborts.append(choice.core_id)
        if output.finish_reason is FinishReason.ERROR:
            answer.error = output.error or "the engine gave no reason"
            if output.is_overdue:
                answer.overdue_s = now_s - answer.request.arrival_time_s
                observed.num_overdue += 1
            processed.aborts += self._end_others(answer)
        else:
            observed.e2e_latency_s.observe(now_s - answer.request.arrival_time_s)
            observed.generation_tokens.observe(choice.num_tokens)
            if answer.scheduled_s:
                observed.queue_time_s.observe(answer.scheduled_s - answer.request.arrival_time_s)
        if answer.is_streamed or answer.is_finished:
            processed.news[choice.key] = None

    def _end_others(self, answer: Answer) -> list[str]:
        """End the live choices of a request of which one has failed."""
        others = [c for c in answer.choices if self._choices.pop(c.core_id, None)]
        for choice in others:
            choice.finish_reason = FinishReason.ABORT
            self.observations.count_finished(FinishReason.ABORT)
            self._tenant_tokens.add_ended(choice)
        return [choice.core_id for choice in others]


def _failure(answer: Answer, reason: str) -> RequestFailedError:
    text = f"request {answer.request.request_id} failed: {reason}"
    if answer.overdue_s:
        return QueueTimeoutError(text, retry_after_s=answer.overdue_s)
    return RequestFailedError(text)
