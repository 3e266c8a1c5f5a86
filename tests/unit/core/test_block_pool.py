"""Blocks are live, cached or free; least recently used content goes first."""

from __future__ import annotations

import pytest

from chairlift.core.block_hash import hash_block, root_hash
from chairlift.core.block_pool import BlockPool


def content(number: int) -> bytes:
    return hash_block(root_hash(""), [number])


def pool_with_cached(num_blocks: int, num_cached: int) -> BlockPool:
    """A pool whose blocks 0, 1, ... hold contents 0, 1, ..., the lowest used longest ago."""
    pool = BlockPool(num_blocks)
    for i in range(num_cached):
        (block_id,) = pool.allocate(1)
        pool.set_content(block_id, content(i))
        others = pool.allocate(pool.num_free)  # so that the next one is another block
        pool.release([block_id])
        pool.release(others)
    return pool


def test_new_pool_is_free() -> None:
    pool = BlockPool(4)
    assert (pool.num_live, pool.num_cached, pool.num_free) == (0, 0, 4)


def test_low_ids_are_handed_out_first() -> None:
    assert BlockPool(4).allocate(3) == [0, 1, 2]


def test_allocating_too_many_changes_nothing() -> None:
    pool = BlockPool(4)
    with pytest.raises(ValueError, match="5 blocks wanted, 4 available"):
        pool.allocate(5)
    assert pool.num_free == 4


def test_released_block_with_content_is_cached_and_found() -> None:
    pool = pool_with_cached(4, 1)
    assert (pool.num_live, pool.num_cached, pool.num_free) == (0, 1, 3)
    assert pool.find(content(0)) == 0


def test_free_blocks_are_used_before_cached_ones() -> None:
    pool = pool_with_cached(4, 2)
    pool.allocate(2)
    assert pool.num_cached == 2


def test_content_used_longest_ago_is_evicted_first() -> None:
    pool = pool_with_cached(3, 3)
    (block_id,) = pool.allocate(1)
    assert pool.find(content(0)) is None
    assert pool.find(content(1)) is not None
    assert pool.ref_count(block_id) == 1


def test_acquired_block_is_live_and_cannot_be_evicted() -> None:
    pool = pool_with_cached(3, 1)
    pool.acquire([0])
    pool.allocate(2)
    with pytest.raises(ValueError, match="1 blocks wanted, 0 available"):
        pool.allocate(1)
    assert pool.find(content(0)) == 0


def test_block_held_twice_stays_live_until_both_let_go() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.acquire(blocks)
    pool.release(blocks)
    assert pool.num_live == 1
    pool.release(blocks)
    assert pool.num_live == 0


def test_end_of_a_chain_is_evicted_before_its_beginning() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    for i, block_id in enumerate(blocks):
        pool.set_content(block_id, content(i))
    pool.release(blocks)
    pool.allocate(1)
    assert [pool.find(content(i)) is not None for i in range(3)] == [True, True, False]


def test_second_block_with_the_same_content_stays_unfindable() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.set_content(first, content(0))
    pool.set_content(second, content(0))
    pool.release([first, second])
    assert (pool.num_cached, pool.num_free) == (1, 1)
    assert pool.find(content(0)) == first


def test_releasing_more_often_than_taken_is_an_error() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="block 0 released more often"):
        pool.release(blocks)


def test_hash_depends_on_tokens_prefix_and_salt() -> None:
    hashes = {
        hash_block(root_hash(""), [1, 2]),
        hash_block(root_hash(""), [2, 1]),
        hash_block(root_hash("x"), [1, 2]),
        hash_block(hash_block(root_hash(""), [1, 2]), [1, 2]),
    }
    assert len(hashes) == 4
