"""Load is sent when the workload says, and what the clients saw is put together rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.bench.stand_in_server import (
    chunked,
    completion,
    event,
    stand_in,
    with_status,
)

from chairlift.bench.http_client import Address
from chairlift.bench.server_metrics import ServerSide, between, parse_counters
from chairlift.bench.serving import ServingResult, result_of, run_load
from chairlift.bench.target import Measured, Prompts, Target, served_models
from chairlift.workload.workload import Workload

PROMPTS = Prompts(7, 1000)


def workload_of(*rows: tuple[float, int, int]) -> Workload:
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return Workload(np.array(arrivals), np.array(prompts), np.array(outputs))


def answer_as_asked(request: dict[str, Any]) -> bytes:
    return completion(request["max_tokens"], len(request["prompt"]))


async def load(
    answer: Any, *rows: tuple[float, int, int], **options: Any
) -> tuple[ServingResult, list[dict[str, Any]]]:
    async with stand_in(answer) as server:
        target = Target(Address.parse(server.url), "m")
        result = await run_load(target, workload_of(*rows), PROMPTS, **options)
        return result, server.requests


async def test_requests_have_the_lengths_of_the_workload() -> None:
    result, requests = await load(answer_as_asked, (0.0, 5, 3), (0.01, 8, 2))
    assert [len(r["prompt"]) for r in requests] == [5, 8]
    assert [r["max_tokens"] for r in requests] == [3, 2]
    assert all(r["ignore_eos"] and r["stream_options"] == {"include_usage": True} for r in requests)
    assert result.times.num_output_tokens.tolist() == [3, 2]
    assert result.num_prompt_tokens == 13
    assert result.gaps.counts.sum() == 3


async def test_requests_are_sent_when_they_are_due() -> None:
    result, _ = await load(answer_as_asked, (0.0, 1, 1), (0.15, 1, 1))
    assert np.diff(result.times.arrival_s)[0] >= 0.14


async def test_failures_are_counted_by_reason_and_kept_out_of_the_figures() -> None:
    def answer(request: dict[str, Any]) -> bytes:
        if len(request["prompt"]) == 2:
            return with_status("500 Oh", b"broken")
        if len(request["prompt"]) == 3:
            return chunked(event({"error": {"message": "died"}}))
        return completion(4, 1)

    result, _ = await load(answer, (0.0, 1, 4), (0.0, 2, 4), (0.0, 3, 4), (0.0, 2, 4))
    assert len(result.times) == 1
    assert result.errors == {"status 500: broken": 2, '{"message": "died"}': 1}
    assert result.num_failed == 3


async def test_an_answer_without_usage_is_a_failure() -> None:
    result, _ = await load(lambda _: chunked(event({"choices": [{"text": "x"}]})), (0.0, 1, 1))
    assert list(result.errors) == ["the server reported no output tokens (usage in the last event)"]


async def test_the_share_of_cached_prompts_is_reported() -> None:
    result, _ = await load(lambda _: completion(1, 10, num_cached=4), (0.0, 10, 1), (0.0, 10, 1))
    assert result.cached_share == pytest.approx(0.4)


async def test_a_cached_share_that_only_the_servers_metrics_show_is_reported() -> None:
    """O11: many servers say nothing of cached tokens in their answers."""
    async with stand_in(answer_as_asked) as server:
        server.num_cached_per_request = 3
        target = Target(Address.parse(server.url), "m")
        result = await run_load(target, workload_of((0.0, 10, 1), (0.0, 10, 1)), PROMPTS)
    assert result.num_cached_tokens == 0
    assert result.cached_share == pytest.approx(0.3)


async def test_the_server_says_how_long_requests_queued() -> None:
    result, _ = await load(answer_as_asked, (0.0, 1, 1), (0.0, 1, 1))
    assert result.server == ServerSide(mean_queue_s=0.5, num_preemptions=6)


async def test_a_server_without_metrics_can_be_measured() -> None:
    async with stand_in(answer_as_asked) as server:
        server.has_metrics = False
        target = Target(Address.parse(server.url), "m")
        result = await run_load(target, workload_of((0.0, 1, 1)), PROMPTS)
    assert result.server is None
    assert len(result.times) == 1


async def test_every_request_that_ends_is_announced() -> None:
    done: list[int] = []
    await load(answer_as_asked, (0.0, 1, 1), (0.0, 1, 1), on_done=lambda: done.append(1))
    assert len(done) == 2


async def test_a_bound_on_concurrency_lets_all_requests_through() -> None:
    rows = [(0.0, 1, 1)] * 5
    result, requests = await load(answer_as_asked, *rows, max_concurrency=1)
    assert len(result.times) == len(requests) == 5


async def test_the_models_of_a_server_are_listed() -> None:
    async with stand_in(answer_as_asked) as server:
        names = await served_models(Address.parse(server.url), {})
    assert names == ["first", "second"]


def test_prompts_differ_between_requests_and_between_runs() -> None:
    first, second = (PROMPTS.draw(i, 50) for i in range(2))
    assert first != second
    assert first == Prompts(7, 1000).draw(0, 50) != Prompts(8, 1000).draw(0, 50)
    assert all(100 <= token_id < 1000 for token_id in first)


def test_metrics_are_those_worked_out_by_hand() -> None:
    measured = [
        Measured(10.0, [11.0, 11.5, 13.0], 5, 0, 3),
        Measured(10.5, [10.75], 5, 5, 3),
        Measured(0.5, [], error="refused"),
    ]
    result = result_of(measured, None)
    assert result.times.ttft_s.tolist() == [1.0, 0.25]
    assert result.times.tpot_s.tolist() == [1.0, 0.0]
    # The second's three tokens came in one piece: two gaps of nothing.
    assert sorted(result.gaps.gap_s.tolist()) == [0.0, 0.0, 0.5, 1.5]
    assert result.cached_share == 0.5
    assert result.duration_s == 12.5
    assert result.output_throughput_per_s == pytest.approx(6 / 12.5)


def test_a_run_in_which_all_failed_has_no_figures() -> None:
    result = result_of([Measured(1.0, error="no")], None)
    assert result.request_throughput_per_s == result.output_throughput_per_s == 0.0
    assert result.cached_share == 0.0


def test_counters_are_summed_over_labels_and_may_be_missing() -> None:
    page = (
        "# HELP x\n"
        'vllm:request_queue_time_seconds_sum{e="0"} 1.5\n'
        'vllm:request_queue_time_seconds_sum{e="1"} 0.5\n'
        'vllm:request_queue_time_seconds_count{e="0"} 4\n'
        "vllm:num_preemptions_total 2\n"
    )
    counters = parse_counters(page)
    assert counters is not None
    assert (counters.queue_s, counters.num_queued, counters.num_preemptions) == (2.0, 4.0, 2.0)
    assert parse_counters(page.replace("preemptions", "other")) is None
    assert between(None, counters) is None
    assert between(counters, counters) == ServerSide(None, 0)
