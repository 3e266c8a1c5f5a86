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
    bench.add(make_request("a", PROMPT[:15]), make_request("b", PROMPT[:15]))
    bench.step()
    assert bench.batches[0] == {"a": 15, "b": 15}


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=64)
    equals = [make_request(f"e{i}", PROMPT, max_tokens=3) for i in range(4)]
    bench.add(*equals, make_request("other", 5, max_tokens=3))
    bench.step()
    assert bench.batches[0] == {"e0": 17, "other": 5}
    bench.step()
    assert bench.batches[1] == {"e0": 1, "other": 1, "e1": 1, "e2": 1, "e3": 1}
    bench.run()
    for request in equals:
        assert bench.tokens_of(request.request_id) == expected_tokens(request)


def test_a_prompt_read_in_pieces_is_waited_for_to_its_end() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=16)
    prompt = list(range(300, 341))
    bench.add(*(make_request(name, prompt, max_tokens=2) for name in "ab"))
    bench.step()
    (report,) = bench.scheduler.explain(lambda name: name == "b")
    assert report.wait is not None
    assert report.wait.limit == "prefix"
    assert [(e.kind, e.details.get("limit")) for e in report.events][1] == ("blocked", "prefix")
    bench.run()
    # When all but three of its blocks are there, b does not wait for those.
    assert bench.batches[:3] == [{"a": 16}, {"a": 16}, {"a": 9, "b": 7}]
    equal = expected_tokens(make_request("b", prompt, max_tokens=2))
    assert bench.tokens_of("a") == bench.tokens_of("b") == equal


def test_equal_prompts_share_a_static_batch() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=64, batching="static")
    bench.add(make_request("a", PROMPT), make_request("b", PROMPT))
    bench.step()
    assert bench.batches[0] == {"a": 17, "b": 17}


def test_nobody_waits_for_the_blocks_of_a_request_that_has_stopped() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=8)
    prompt = list(range(300, 341))
    bench.add(*(make_request(name, prompt, max_tokens=2) for name in "ab"))
    bench.step()
    assert bench.batches[0] == {"a": 8}
    bench.abort("a")
    bench.step()
    assert bench.batches[1] == {"b": 8}  # the first two blocks of its prompt are those of a
    bench.run()
    assert bench.tokens_of("b") == expected_tokens(make_request("b", prompt, max_tokens=2))


def test_who_wants_logprobs_of_its_prompt_waits_for_nobody() -> None:
    bench = Bench(block_size=4, max_num_batched_tokens=64)
    bench.add(make_request("a", PROMPT), make_request("b", PROMPT, prompt_logprobs=0))
    bench.step()
    assert bench.batches[0] == {"a": 17, "b": 17}


def test_an_urgent_request_takes_no_slot_to_wait_in() -> None:
    bench = Bench(
        block_size=4, max_num_seqs=2, max_num_batched_tokens=8, scheduling_policy="priority"
    )
    bench.add(*(make_request(f"low{i}", 2, max_tokens=30, priority=5) for i in range(2)))
    bench.step()
    prompt = list(range(300, 341))
    bench.add(*(make_request(f"u{i}", prompt, max_tokens=2, arrival_time_s=1.0) for i in range(2)))
    plans = [bench.step() for _ in range(3)]
    # One gives way to the first; the other runs on while the second waits for the first's blocks.
    assert [plan.preempted_request_ids for plan in plans] == [["low1"], [], []]
    assert all("low0" in batch for batch in bench.batches)
    bench.run()


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
