"""The admission watermark rises with preemptions and falls with requests that end."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, make_request

from chairlift.core.request import Request, RequestStatus
from chairlift.core.watermark import MAX_SHARE, MIN_SHARE, Watermark

NEW = Request(make_request("new"), 100)


def returning() -> Request:
    request = Request(make_request("returning"), 100)
    request.status = RequestStatus.PREEMPTED
    return request


def test_it_doubles_with_each_step_that_preempts_up_to_half_the_pool() -> None:
    mark = Watermark(1000)
    blocks = []
    for _ in range(8):
        blocks.append(mark.num_reserved(NEW, num_running=1))
        mark.rise()
    assert blocks == [10, 20, 40, 80, 160, 320, 500, 500]


def test_after_seventy_requests_that_ended_it_is_down_again() -> None:
    mark = Watermark(1000)
    for _ in range(20):
        mark.rise()
    assert mark.share == MAX_SHARE
    num_ended = 0
    while mark.share > MIN_SHARE:
        mark.fall()
        num_ended += 1
    assert num_ended == 61
    mark.fall()
    assert mark.share == MIN_SHARE


@pytest.mark.parametrize("num_blocks", [2, 10, 64])
def test_in_a_small_pool_one_step_that_preempts_is_worth_a_block(num_blocks: int) -> None:
    mark = Watermark(num_blocks)
    assert mark.num_reserved(NEW, num_running=1) == 0
    mark.rise()
    assert mark.num_reserved(NEW, num_running=1) == 1


def test_nothing_is_kept_while_nothing_runs() -> None:
    mark = Watermark(1000)
    mark.rise()
    assert mark.num_reserved(NEW, num_running=0) == 0
    assert mark.num_reserved(returning(), num_running=0) == 0


def test_one_that_returns_leaves_a_block_for_each_that_runs_and_for_itself() -> None:
    assert Watermark(1000).num_reserved(returning(), num_running=6) == 7


def test_after_preemptions_fewer_requests_are_admitted_into_the_same_pool() -> None:
    bench = Bench(num_kv_blocks=20, block_size=4, max_num_seqs=20, enable_prefix_caching=False)
    bench.add(*(make_request(f"{i}", 4, max_tokens=12) for i in range(40)))
    most_running = []
    while bench.scheduler.has_work:
        bench.step()
        most_running.append(bench.scheduler.stats().num_running)
    first = next(i for i, plan in enumerate(bench.runner.plans) if plan.preempted_request_ids)
    assert max(most_running[: first + 1]) > max(most_running[first + 5 :])
    assert bench.scheduler.stats().num_preemptions_total < 40
