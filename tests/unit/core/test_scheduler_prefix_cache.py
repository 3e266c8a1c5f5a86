"""Full blocks are shared between equal prefixes, and only then."""

from __future__ import annotations

from tests.fakes import Bench, expected_tokens, make_request

PROMPT = list(range(100, 117))  # 17 tokens: four full blocks of 4 and one token


def run_twice(second_prompt: list[int], **params: object) -> tuple[Bench, int]:
    """Run PROMPT, then another prompt; returns how many tokens of that one were cached."""
    bench = Bench(block_size=4)
    bench.add(make_request("first", PROMPT, max_tokens=1))
    bench.run()
    second = make_request("second", second_prompt, max_tokens=3, **params)  # type: ignore[arg-type]
    bench.add(second)
    bench.run()
    assert bench.tokens_of("second") == expected_tokens(second)
    return bench, bench.outputs["second"][0].num_cached_tokens


def test_equal_prompt_reuses_all_full_blocks() -> None:
    bench, num_cached = run_twice(PROMPT)
    assert num_cached == 16
    assert bench.batches[1] == {"second": 1}


def test_at_least_one_token_is_always_computed() -> None:
    assert run_twice(PROMPT[:16])[1] == 12


def test_prompt_that_shares_two_blocks_reuses_two() -> None:
    assert run_twice([*PROMPT[:8], 7, *PROMPT[9:]])[1] == 8


def test_equal_block_after_another_beginning_is_not_reused() -> None:
    assert run_twice([7, *PROMPT[1:]])[1] == 0


def test_other_salt_shares_nothing() -> None:
    assert run_twice(PROMPT, cache_salt="tenant b")[1] == 0


def test_request_for_prompt_logprobs_computes_its_whole_prompt() -> None:
    assert run_twice(PROMPT, prompt_logprobs=1)[1] == 0


def test_nothing_is_reused_when_switched_off() -> None:
    bench = Bench(block_size=4, enable_prefix_caching=False)
    bench.add(make_request("a", PROMPT, max_tokens=1))
    bench.run()
    bench.add(make_request("b", PROMPT, max_tokens=1))
    bench.run()
    stats = bench.scheduler.stats()
    assert bench.batches[1] == {"b": 17}
    assert (stats.num_cached_blocks, stats.prefix_cache_queried_tokens) == (0, 0)


def test_blocks_of_a_running_request_are_shared_and_outlive_it() -> None:
    bench = Bench(block_size=4)
    bench.add(make_request("a", PROMPT, max_tokens=4))
    bench.step()
    other = make_request("b", [*PROMPT, 5, 6], max_tokens=9)
    bench.add(other)
    bench.step()
    assert bench.batches[1] == {"a": 1, "b": 3}
    bench.run()
    assert bench.tokens_of("b") == expected_tokens(other)


def test_block_is_not_found_before_it_is_computed() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=64)
    bench.add(make_request("a", PROMPT), make_request("b", PROMPT))
    bench.step()
    assert bench.batches[0] == {"a": 17, "b": 17}


def test_output_tokens_are_cached_for_the_next_turn_of_a_conversation() -> None:
    bench = Bench(block_size=4)
    first = make_request("a", PROMPT, max_tokens=8)
    bench.add(first)
    bench.run()
    bench.add(make_request("b", [*PROMPT, *expected_tokens(first), 9], max_tokens=1))
    bench.run()
    # 24 of the 25 tokens before the last output token's were computed.
    assert bench.outputs["b"][0].num_cached_tokens == 24


def test_hit_rate_counts_looked_up_and_found_tokens() -> None:
    bench, _ = run_twice(PROMPT)
    stats = bench.scheduler.stats()
    assert (stats.prefix_cache_queried_tokens, stats.prefix_cache_hit_tokens) == (34, 16)
