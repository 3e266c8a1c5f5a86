"""Blocks that nobody holds are not counted as used, however full the prefix cache is."""

from __future__ import annotations

from tests.api.serving import Server


def test_after_many_prompts_an_idle_pool_is_cached_not_used(server: Server) -> None:
    """O3 (kekzl/imp#1115, kekzl/imp#1120)"""
    for number in range(24):
        server.complete([100 + number] * 40, max_tokens=2)
    server.wait_idle()
    assert server.metric("kv_blocks", state="live") == 0
    assert server.metric("kv_cache_usage_perc") == 0
    cached = server.metric("kv_blocks", state="cached")
    assert cached >= 24 * 2
    assert cached + server.metric("kv_blocks", state="free") == 2048
