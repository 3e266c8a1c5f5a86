"""Block tables: which KV blocks hold which tokens of a request."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.block_hash import hash_block, root_hash
from chairlift.core.block_pool import BlockPool
from chairlift.core.request import Request


@dataclass(slots=True)
class PrefixCacheCounts:
    """Tokens looked up in the prefix cache and found there, since the start.

    Requests that come back after a preemption are counted in ``num_recovered_tokens`` alone: they
    find what they computed themselves, which says nothing about prompts that have much in common.
    """

    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_recovered_tokens: int = 0


class KVCacheManager:
    """Gives each request the blocks that its tokens need, and shares full ones between requests.

    Token ``i`` of a request lives in slot ``i % block_size`` of block ``table[i // block_size]``.
    A full block is findable by its hash once its KV has been computed, never before.
    """

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.prefix_counts = PrefixCacheCounts()
        self._enable_prefix_caching = enable_prefix_caching
        self._tables: dict[str, list[int]] = {}

    def block_ids(self, request: Request) -> tuple[int, ...]:
        """The request's block table, in the order of its tokens."""
        return tuple(self._tables.get(request.request_id, ()))

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def cached_tokens(self, request: Request) -> int:
        """Leading tokens of a request without blocks that the prefix cache has now."""
        return len(self._find_cached_prefix(request)) * self.block_size

    def num_missing_blocks(self, request: Request, num_reserved_blocks: int) -> int:
        """How many more blocks would have to be available for :meth:`start` to succeed."""
        cached = self._find_cached_prefix(request)
        num_revived = sum(1 for block_id in cached if self.pool.ref_count(block_id) == 0)
        num_new = self.num_blocks_for(request.num_tokens) - len(cached)
        return num_new + num_revived + num_reserved_blocks - self.pool.num_available

    def num_own_blocks(self, request: Request) -> int:
        """Blocks that nobody else holds: those that become available when it lets go."""
        table = self._tables.get(request.request_id, ())
        return sum(1 for block_id in table if self.pool.ref_count(block_id) == 1)

    def start(self, request: Request, num_reserved_blocks: int) -> int | None:
        """Give a request without blocks room for all its tokens, cached prefix included.

        All at once, although a long prompt is computed in chunks: so it is never preempted for
        lack of room half-way through its own prompt.

        Args:
            num_reserved_blocks: Blocks to leave available for others.

        Returns:
            How many leading tokens have their KV already, or ``None`` if there is no room now; then
            nothing has changed.
        """
        cached = self._find_cached_prefix(request)
        num_new = self.num_blocks_for(request.num_tokens) - len(cached)
        num_revived = sum(1 for block_id in cached if self.pool.ref_count(block_id) == 0)
        if num_new + num_revived + num_reserved_blocks > self.pool.num_available:
            return None
        self.pool.acquire(cached)
        table = cached + self.pool.allocate(num_new)
        self._tables[request.request_id] = table
        request.num_slots = len(table) * self.block_size
        request.num_findable_blocks = len(cached)
        num_cached_tokens = len(cached) * self.block_size
        self._count(request, num_cached_tokens)
        return num_cached_tokens

    def grow(self, request: Request, num_tokens: int) -> tuple[int, ...] | None:
        """Make room for the first ``num_tokens`` tokens of a request that has blocks.

        Needed only when ``num_tokens`` is above ``request.num_slots``.

        Returns:
            Ids of the blocks added, or ``None`` if there is no room now; then nothing has changed.
        """
        table = self._tables[request.request_id]
        num_missing = self.num_blocks_for(num_tokens) - len(table)
        if num_missing > self.pool.num_available:
            return None
        new = self.pool.allocate(num_missing)
        table.extend(new)
        request.num_slots = len(table) * self.block_size
        return tuple(new)

    def record_computed(self, request: Request) -> None:
        """Make the request's full, computed blocks findable."""
        num_full = request.num_computed_tokens // self.block_size
        num_known = request.num_findable_blocks
        if num_full == num_known or not self._enable_prefix_caching:
            return
        table = self._tables[request.request_id]
        hashes = self._hashes_up_to(request, num_full)
        for i in range(num_known, num_full):
            self.pool.set_content(table[i], hashes[i])
        request.num_findable_blocks = num_full

    def free(self, request: Request) -> None:
        """Let go of all blocks of a request; one without blocks is left as it is."""
        table = self._tables.pop(request.request_id, None)
        if table is not None:
            request.num_slots = request.num_findable_blocks = 0
            self.pool.release(table)

    def _find_cached_prefix(self, request: Request) -> list[int]:
        """Blocks of the longest cached prefix that leaves at least one token to compute."""
        asks_all_logits = request.core_request.sampling_params.prompt_logprobs is not None
        if not self._enable_prefix_caching or asks_all_logits:
            return []
        num_full = (request.num_tokens - 1) // self.block_size
        found: list[int] = []
        for block_hash in self._hashes_up_to(request, num_full)[:num_full]:
            block_id = self.pool.find(block_hash)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def _hashes_up_to(self, request: Request, num_blocks: int) -> list[bytes]:
        hashes = request.block_hashes
        parent = hashes[-1] if hashes else root_hash(request.core_request.cache_salt)
        for i in range(len(hashes), num_blocks):
            start = i * self.block_size
            parent = hash_block(parent, request.token_ids[start : start + self.block_size])
            hashes.append(parent)
        return hashes

    def _count(self, request: Request, num_cached_tokens: int) -> None:
        if request.num_preemptions:
            self.prefix_counts.num_recovered_tokens += num_cached_tokens
        elif self._enable_prefix_caching:
            self.prefix_counts.num_queried_tokens += request.num_tokens
            self.prefix_counts.num_hit_tokens += num_cached_tokens
