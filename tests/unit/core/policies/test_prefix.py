"""Cached prefixes first, but nobody waits for ever."""

from __future__ import annotations

from tests.fakes import Bench, make_request

HOT = list(range(100, 117))


def test_longest_cached_prefix_goes_first() -> None:
    bench = Bench(scheduling_policy="prefix", max_num_seqs=1, prefix_max_wait_s=100.0)
    bench.add(make_request("warm-up", HOT, max_tokens=1))
    bench.run()
    bench.add(make_request("cold", 17, max_tokens=1), make_request("half", [*HOT[:8], 5, 6]))
    bench.add(make_request("hot", [*HOT, 7], max_tokens=1))
    bench.run()
    order = list(dict.fromkeys(name for batch in bench.batches[1:] for name in batch))
    assert order == ["hot", "half", "cold"]


def test_cold_request_starts_when_it_has_waited_long_enough() -> None:
    """S7 (vllm#20608)"""
    bench = Bench(scheduling_policy="prefix", max_num_seqs=1, prefix_max_wait_s=10.0)
    bench.add(make_request("warm-up", HOT, max_tokens=1))
    bench.run()
    bench.add(make_request("cold", 5, max_tokens=1, arrival_time_s=bench.now_s))
    for i in range(40):
        for j in range(2):
            name = f"hot{i}-{j}"
            bench.add(make_request(name, [*HOT, i], max_tokens=1, arrival_time_s=bench.now_s))
        bench.step()
    started = next(i for i, batch in enumerate(bench.batches) if "cold" in batch)
    assert 10 <= started <= 12
