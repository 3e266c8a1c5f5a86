"""Tokens and queued choices are counted on the right account, whatever ends a request."""

from __future__ import annotations

from chairlift.engine.output_processor import OutputProcessor
from chairlift.engine.tenant_usage import TenantUsage
from chairlift.inputs import GenerateRequest
from chairlift.outputs import FinishReason, StepOutput
from chairlift.sampling_params import SamplingParams
from chairlift.tokenization.tokenizer import Tokenizer


def add(processor: OutputProcessor, key: str, tenant: str, *, n: int = 1) -> None:
    params = SamplingParams(max_tokens=9, n=n, seed=1)
    request = GenerateRequest(key, (1, 2, 3), params, 0.0, tenant=tenant)
    ids = [key] if n == 1 else [f"{key}/{i}" for i in range(n)]
    processor.add(key, request, ids, is_streamed=False)


def test_prompts_count_once_and_choices_queue_until_their_first_token(
    tokenizer: Tokenizer,
) -> None:
    processor = OutputProcessor(tokenizer)
    add(processor, "x", "a", n=2)
    add(processor, "y", "b")
    assert processor.usage_of("a") == TenantUsage(num_queued=2, num_tokens=3)
    processor.process([StepOutput("x/0", (65,))], 1.0)
    assert processor.usage_of("a") == TenantUsage(num_queued=1, num_tokens=4)
    assert processor.usage_of("b") == TenantUsage(num_queued=1, num_tokens=3)


def test_the_tokens_of_finished_and_of_abandoned_requests_stay_counted(
    tokenizer: Tokenizer,
) -> None:
    processor = OutputProcessor(tokenizer)
    add(processor, "x", "a")
    add(processor, "y", "a")
    processor.process([StepOutput("x", (65, 66), FinishReason.LENGTH)], 1.0)
    processor.process([StepOutput("y", (65,))], 2.0)
    processor.remove("y")
    assert processor.usage_of("a") == TenantUsage(num_queued=0, num_tokens=3 + 2 + 3 + 1)


def test_requests_of_nobody_are_on_nobody_s_account(tokenizer: Tokenizer) -> None:
    processor = OutputProcessor(tokenizer)
    add(processor, "x", "")
    processor.remove("x")
    assert processor.usage_of("") == TenantUsage()
