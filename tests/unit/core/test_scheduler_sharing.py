"""Requests that lack blocks let others pass, and long prompts share the step, both with a bound."""

from __future__ import annotations

from tests.fakes import Bench, make_request


def blocked_bench(**options: int) -> Bench:
    """A pool of 20 blocks: one request holds 14, the next needs 20, small ones need 2."""
    bench = Bench(num_kv_blocks=20, block_size=4, max_num_seqs=8, **options)
    bench.add(make_request("holder", 53, max_tokens=10))
    bench.step()
    bench.add(make_request("big", 77, max_tokens=2))
    return bench


def test_small_requests_pass_one_that_lacks_blocks() -> None:
    bench = blocked_bench()
    bench.add(make_request("small", 5, max_tokens=2))
    bench.step()
    assert "small" in bench.batches[-1]
    assert "big" not in bench.batches[-1]


def test_only_so_many_requests_pass_before_blocks_are_kept() -> None:
    bench = blocked_bench(max_head_passes=3)
    for i in range(40):
        bench.add(make_request(f"s{i}", 5, max_tokens=2))
        bench.step()
    bench.run()
    first_of = {n: i for i, batch in reversed(list(enumerate(bench.batches))) for n in batch}
    passed = [n for n in first_of if n.startswith("s") and first_of[n] < first_of["big"]]
    assert len(passed) == 3
    assert len(bench.tokens_of("big")) == 2


def test_nobody_passes_when_the_bound_is_zero() -> None:
    bench = blocked_bench(max_head_passes=0)
    bench.add(make_request("small", 5, max_tokens=2))
    bench.step()
    assert list(bench.batches[-1]) == ["holder"]


def test_short_prompt_behind_a_long_one_starts_in_the_next_step() -> None:
    bench = Bench(max_num_batched_tokens=64, num_kv_blocks=400, block_size=4)
    bench.add(make_request("long", 600, max_tokens=1))
    bench.step()
    bench.add(make_request("short", 20, max_tokens=2))
    bench.step()
    assert bench.batches == [{"long": 64}, {"long": 44, "short": 20}]
    assert len(bench.tokens_of("short")) == 1


def test_whole_budget_is_used_while_prompts_share_it() -> None:
    bench = Bench(max_num_batched_tokens=64, num_kv_blocks=800, block_size=4)
    bench.add(*(make_request(f"p{i}", 300, max_tokens=1) for i in range(3)))
    for _ in range(4):
        bench.step()
    assert all(sum(batch.values()) == 64 for batch in bench.batches)
    assert set(bench.batches[0]) == {"p0", "p1", "p2"}


def test_running_decodes_get_their_token_before_prompts_get_shares() -> None:
    bench = Bench(max_num_batched_tokens=32, num_kv_blocks=400, block_size=4)
    bench.add(*(make_request(f"d{i}", max_tokens=30) for i in range(5)))
    bench.step()
    bench.add(make_request("a", 100), make_request("b", 100))
    bench.step()
    assert {n: bench.batches[1][n] for n in ("d0", "d4")} == {"d0": 1, "d4": 1}
    assert bench.batches[1]["a"] + bench.batches[1]["b"] == 27
