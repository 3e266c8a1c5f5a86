"""The same request gives the same answer, whatever else the server is doing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.api.serving import Server

PROMPT = "The first chair of the day went up with nobody in it, as"
GREEDY = {"max_tokens": 24, "ignore_eos": True, "logprobs": 3, "return_token_ids": True}


def essence(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What must be equal of two answers: token ids and every number."""
    return [(c["token_ids"], c["text"], c["logprobs"]) for c in answer["choices"]]


def test_neighbours_do_not_change_a_greedy_answer(server: Server) -> None:
    """vllm#23138: alone, then among eight others."""
    alone = essence(server.complete(PROMPT, **GREEDY, cache_salt="alone"))
    neighbours = [f"{i} other words " * (i + 1) for i in range(8)]
    with ThreadPoolExecutor(9) as threads:
        others = [
            threads.submit(server.complete, text, max_tokens=60, ignore_eos=True)
            for text in neighbours
        ]
        crowded = threads.submit(server.complete, PROMPT, **GREEDY, cache_salt="crowded")
        assert essence(crowded.result()) == alone
        assert all(other.result()["usage"]["completion_tokens"] == 60 for other in others)


def test_a_prefix_cache_hit_does_not_change_a_greedy_answer(server: Server) -> None:
    """vllm#42699: the same prompt again, then one that shares two blocks."""
    long = [(7 * i * i + 3) % 250 for i in range(50)]
    other = long[:32] + [9] * 18
    cold = {id(p): essence(server.complete(p, **GREEDY, cache_salt=str(p))) for p in (long, other)}
    for prompt, cached in ((long, 0), (long, 48), (other, 32)):
        answer = server.complete(prompt, **GREEDY, cache_salt="warm")
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert essence(answer) == cold[id(prompt)]


def test_echoed_logprobs_are_the_same_on_a_cache_hit(server: Server) -> None:
    """vllm#8268: a prompt longer than one block."""
    fields = {"echo": True, "logprobs": 1, "max_tokens": 1, "cache_salt": "echo"}
    first, second = (server.complete(list(range(40, 80)), **fields) for _ in range(2))
    assert first["choices"][0]["logprobs"] == second["choices"][0]["logprobs"]
    assert len(first["choices"][0]["logprobs"]["tokens"]) == 41


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_a_seed_repeats_and_another_differs(server: Server, endpoint: str) -> None:
    """sglang#15481"""

    def text(seed: int) -> str:
        fields = {"temperature": 1, "seed": seed, "max_tokens": 24, "ignore_eos": True}
        if endpoint == "chat":
            content: str = server.chat("hi", **fields)["choices"][0]["message"]["content"]
            return content
        completed: str = server.complete("hi", **fields)["choices"][0]["text"]
        return completed

    texts = [text(seed) for seed in range(1, 6)]
    assert len(set(texts)) == 5
    assert [text(seed) for seed in range(1, 6)] == texts


def test_choices_under_one_seed_differ_from_each_other_and_repeat(server: Server) -> None:
    """UniRL#208"""
    fields = {"n": 4, "seed": 7, "temperature": 1, "max_tokens": 16, "ignore_eos": True}
    first, second = (server.complete("hi", **fields) for _ in range(2))
    texts = [choice["text"] for choice in first["choices"]]
    assert len(set(texts)) == 4
    assert texts == [choice["text"] for choice in second["choices"]]


def test_without_a_seed_answers_differ_and_the_seed_that_was_drawn_repeats_one(
    server: Server,
) -> None:
    fields = {"temperature": 1, "max_tokens": 16, "ignore_eos": True}
    first, second = (server.complete("hi", **fields)["choices"][0] for _ in range(2))
    assert first["text"] != second["text"]
    again = server.complete("hi", **fields, seed=first["seed"])["choices"][0]
    assert again["text"] == first["text"]


def test_preemption_does_not_change_a_sampled_answer(small_server: Server) -> None:
    """vllm#19940: four requests of five blocks in a pool of eight."""
    fields = {"seed": 7, "temperature": 1, "max_tokens": 60, "ignore_eos": True}
    fields |= {"return_token_ids": True, "logprobs": 1}
    prompts = [[10 * i + j for j in range(20)] for i in range(4)]
    alone = [essence(small_server.complete(prompt, **fields)) for prompt in prompts]
    before = small_server.metric("num_preemptions_total")
    with ThreadPoolExecutor(4) as threads:
        crowded = list(threads.map(lambda p: small_server.complete(p, **fields), prompts))
    assert small_server.metric("num_preemptions_total") > before
    assert [essence(answer) for answer in crowded] == alone
    small_server.wait_idle()
