"""Block tables: which KV blocks hold which tokens of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from chairlift.core.block_hash import hash_block, root_hash
from chairlift.core.block_pool import BlockPool
from chairlift.core.blocks_in_progress import BlocksInProgress
from chairlift.core.left_behind import LeftBehind
from chairlift.core.request import Request
from chairlift.core.scheduler_output import BlockCopy, SchedulerOutput


@dataclass(slots=True)
class PrefixCacheCounts:
    """Tokens looked up in the prefix cache and found there, since the start.

    Requests that come back after a preemption are counted apart: they find what they computed
    themselves, which says nothing about prompts that have much in common.

    Attributes:
        num_recovered_tokens: Found in the pool by requests that came back.
        num_swapped_tokens: Found in the second tier by them.
    """

    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_recovered_tokens: int = 0
    num_swapped_tokens: int = 0


class _Found(NamedTuple):
    """The longest run of leading tokens of a request whose KV is somewhere.

    Attributes:
        blocks: Pool blocks that hold it, ``None`` where it is in the second tier.
        slots: Slots of the second tier, ``None`` where it is in the pool.
        num_tokens: Tokens of the run; the last block may be filled in part.
        num_revived: Pool blocks among them that nobody holds.
    """

    blocks: list[int | None]
    slots: list[int | None]
    num_tokens: int
    num_revived: int

    def num_to_take(self, num_blocks: int) -> int:
        """How many available blocks a table of so many blocks takes, with these in it."""
        num_resident = len(self.blocks) - self.blocks.count(None)
        return num_blocks - num_resident + self.num_revived


class KVCacheManager:
    """Gives each request the blocks that its tokens need, and shares full ones between requests.

    Token ``i`` of a request lives in slot ``i % block_size`` of block ``table[i // block_size]``.
    A full block is findable by its hash once its KV has been computed, never before.

    Args:
        num_swap_slots: Blocks that the second tier holds.
        awaits_equal_prompts: Let a request wait for blocks that others are about to compute.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool,
        num_swap_slots: int = 0,
        awaits_equal_prompts: bool = True,
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.left_behind = LeftBehind(num_swap_slots, block_size)
        self.num_swapped_out = 0
        self.num_swapped_in = 0
        self._swap_out: list[BlockCopy] = []
        self._swap_in: list[BlockCopy] = []
        self.prefix_counts = PrefixCacheCounts()
        self._enable_prefix_caching = enable_prefix_caching
        self._awaits_equal_prompts = awaits_equal_prompts and enable_prefix_caching
        self._in_progress = BlocksInProgress()
        self._tables: dict[str, list[int]] = {}

    def begin_step(self, plan: SchedulerOutput) -> None:
        """A step is being planned: copies between the tiers are added to its plan from here on."""
        self.left_behind.begin_step()
        self._swap_out, self._swap_in = plan.swap_out, plan.swap_in

    def block_ids(self, request: Request) -> tuple[int, ...]:
        """The request's block table, in the order of its tokens."""
        return tuple(self._tables.get(request.request_id, ()))

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def cached_tokens(self, request: Request) -> int:
        """Leading tokens of a request without blocks whose KV is somewhere now."""
        return self._find(request).num_tokens

    def awaits_prefix(self, request: Request) -> bool:
        """Whether a request that has never run does well to wait for blocks that others compute.

        Requests with equal prompts that come together thus compute them once. Those others run, so
        that it does not wait for long; if one of them stops, its blocks are not waited for.
        """
        if request.num_preemptions or not self._in_progress:
            return False
        num_cached = len(self._find_cached_prefix(request))
        num_full = (request.num_tokens - 1) // self.block_size
        return self._in_progress.are_worth_awaiting(request.block_hashes[num_cached:num_full])

    def num_missing_blocks(self, request: Request, num_reserved_blocks: int) -> int:
        """How many more blocks would have to be available for :meth:`start` to succeed."""
        num_blocks = self.num_blocks_for(request.num_tokens_to_hold)
        num_taken = self._find(request).num_to_take(num_blocks)
        return num_taken + num_reserved_blocks - self.pool.num_available

    def num_own_blocks(self, request: Request) -> int:
        """Blocks that nobody else holds: those that become available when it lets go."""
        table = self._tables.get(request.request_id, ())
        return sum(1 for block_id in table if self.pool.ref_count(block_id) == 1)

    def start(self, request: Request, num_reserved_blocks: int) -> int | None:
        """Give a request without blocks room for all its tokens, those already computed included.

        All at once, although a long prompt is computed in chunks: so it is never preempted for
        lack of room half-way through its own prompt. What it left behind when it was preempted is
        taken up again as far as it is unbroken.

        Args:
            num_reserved_blocks: Blocks to leave available for others.

        Returns:
            How many leading tokens have their KV already, or ``None`` if there is no room now or
            :meth:`awaits_prefix` says to wait; then nothing has changed.
        """
        if self.awaits_prefix(request):
            return None
        found = self._find(request)
        num_blocks = self.num_blocks_for(request.num_tokens_to_hold)
        if found.num_to_take(num_blocks) + num_reserved_blocks > self.pool.num_available:
            return None
        resident = [block_id for block_id in found.blocks if block_id is not None]
        self.pool.acquire(resident)
        self.pool.discard(self.left_behind.forget(request.request_id))
        new = self._allocate(num_blocks - len(resident))
        self._tables[request.request_id] = self._table_of(found, new)
        request.num_slots = num_blocks * self.block_size
        if not request.num_preemptions:
            request.num_findable_blocks = len(resident)
        self._count(request, found)
        if self._awaits_equal_prompts:
            num_full = request.num_prompt_tokens // self.block_size
            hashes = self._hashes_up_to(request, num_full)[:num_full]
            self._in_progress.started(request.request_id, hashes[len(found.blocks) :])
        return found.num_tokens

    def _table_of(self, found: _Found, new: list[int]) -> list[int]:
        """Join what was found and new blocks, some of which take what is in the second tier."""
        table, unused = [], iter(new)
        for block_id, slot in zip(found.blocks, found.slots, strict=True):
            if block_id is not None:
                table.append(block_id)
            elif slot is not None:
                table.append(next(unused))
                self._swap_in.append(BlockCopy(table[-1], slot))
                self.num_swapped_in += 1
        return [*table, *unused]

    def _allocate(self, num_blocks: int) -> list[int]:
        """Take blocks, saving what preempted requests have left behind in them."""
        block_ids = self.pool.allocate(num_blocks)
        copies, dropped = self.left_behind.handed_out(block_ids)
        self._swap_out += copies
        self.num_swapped_out += len(copies)
        self.pool.discard(dropped)
        return block_ids

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
        new = self._allocate(num_missing)
        table.extend(new)
        request.num_slots = len(table) * self.block_size
        return tuple(new)

    def record_computed(self, request: Request) -> None:
        """Make the request's full, computed blocks findable.

        A simulation that computes many tokens in one step gets the blocks for them here.
        """
        if request.num_computed_tokens > request.num_slots:
            self.grow(request, request.num_computed_tokens)
        num_full = request.num_computed_tokens // self.block_size
        num_known = request.num_findable_blocks
        if num_full == num_known or not self._enable_prefix_caching:
            return
        table = self._tables[request.request_id]
        hashes = self._hashes_up_to(request, num_full)
        for i in range(num_known, num_full):
            self.pool.set_content(table[i], hashes[i])
        self._in_progress.computed(hashes[num_known:num_full])
        request.num_findable_blocks = num_full

    def free(self, request: Request) -> None:
        """Let go of all blocks of a request for good; one without blocks is left as it is."""
        self._release(request, 0)
        self.pool.discard(self.left_behind.forget(request.request_id))

    def leave(self, request: Request, *, is_swapped: bool) -> None:
        """Let go of all blocks of a request that will return; it may find their content again.

        Args:
            is_swapped: Copy the content to the second tier when a block is handed out.
        """
        num_computed = request.num_computed_tokens
        num_kept = self.num_blocks_for(num_computed)
        kept = self._tables[request.request_id][:num_kept]
        self.left_behind.leave(request.request_id, kept, num_computed, is_swapped)
        self._release(request, num_kept)

    def copies_failed(self, plan: SchedulerOutput) -> None:
        """The copies of a step may not have been made: what they were to save is lost."""
        self.pool.discard(self.left_behind.copies_failed(plan.swap_out))

    def _release(self, request: Request, num_kept: int) -> None:
        table = self._tables.pop(request.request_id, None)
        if table is not None:
            self._in_progress.stopped(request.request_id)
            request.num_slots = request.num_findable_blocks = 0
            self.pool.release(table, num_kept)

    def _find(self, request: Request) -> _Found:
        """Find the longest run that leaves at least one token to compute.

        Block by block: in the prefix cache, or where the request left it behind.
        """
        cached = self._find_cached_prefix(request)
        blocks: list[int | None] = [*cached]
        slots: list[int | None] = [None] * len(cached)
        num_tokens = len(cached) * self.block_size
        remains = self.left_behind.of(request.request_id)
        if remains is not None and len(remains.blocks) > len(cached):
            blocks += remains.blocks[len(cached) :]
            slots += remains.slots[len(cached) :]
            num_tokens = remains.num_tokens
        counts = [self.pool.ref_count(b) for b in blocks if b is not None]
        return _Found(blocks, slots, num_tokens, counts.count(0))

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

    def _count(self, request: Request, found: _Found) -> None:
        """Sort the tokens found by where they come from."""
        counts = self.prefix_counts
        if request.num_preemptions:
            num_slots = sum(slot is not None for slot in found.slots)
            request.num_swapped_tokens = min(num_slots * self.block_size, found.num_tokens)
            counts.num_swapped_tokens += request.num_swapped_tokens
            counts.num_recovered_tokens += found.num_tokens - request.num_swapped_tokens
        elif self._enable_prefix_caching:
            counts.num_queried_tokens += request.num_tokens
            counts.num_hit_tokens += found.num_tokens
