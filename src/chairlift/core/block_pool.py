"""The KV blocks: who holds them, what they contain, which one goes next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Reference counts, contents and eviction order of a fixed number of KV blocks.

    Each block is in exactly one of three states, and they always add up to the pool:

    * live: held by at least one request (reference count above 0);
    * cached: held by nobody, but with content that can be found by its hash or that a preempted
      request has left behind; reclaimed when needed;
    * free: held by nobody, content worthless.

    New blocks come from the free ones first, then from the cached ones in order of last use.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._block_of_hash: dict[bytes, int] = {}
        # A stack popped from its end: low ids first, and the most recently freed block (whose
        # memory is warm) is the next to be used.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._kept: set[int] = set()  # cached ones without a hash

    @property
    def num_free(self) -> int:
        """Blocks without content or holder."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks with content but no holder."""
        return len(self._cached)

    @property
    def num_live(self) -> int:
        """Blocks held by at least one request."""
        return self.num_blocks - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that :meth:`allocate` can hand out now: free and cached ones."""
        return len(self._free) + len(self._cached)

    def ref_count(self, block_id: int) -> int:
        """How many requests hold the block."""
        return self._ref_counts[block_id]

    def allocate(self, num_blocks: int) -> list[int]:
        """Take blocks, evicting the contents used longest ago where needed.

        Raises:
            ValueError: Fewer than ``num_blocks`` are available; nothing has changed.
        """
        if num_blocks > self.num_available:
            raise ValueError(f"{num_blocks} blocks wanted, {self.num_available} available")
        block_ids = []
        for _ in range(num_blocks):
            block_id = self._free.pop() if self._free else self._evict()
            self._ref_counts[block_id] = 1
            block_ids.append(block_id)
        return block_ids

    def acquire(self, block_ids: Iterable[int]) -> None:
        """Hold blocks found by :meth:`find` or kept, which may be cached or held by others."""
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                del self._cached[block_id]
                self._kept.discard(block_id)
            self._ref_counts[block_id] += 1

    def release(self, block_ids: Sequence[int], num_kept: int = 0) -> None:
        """Let go of a request's blocks, given in the order of its tokens.

        The last block is put at the head of the eviction order before the ones it depends on: a
        block can only be found through all the blocks before it.

        Args:
            num_kept: Leading blocks whose content is of use even without a hash; until they are
                handed out or :meth:`discard` is called.
        """
        for index in range(len(block_ids) - 1, -1, -1):
            block_id = block_ids[index]
            count = self._ref_counts[block_id] - 1
            if count < 0:
                raise RuntimeError(f"block {block_id} released more often than it was taken")
            self._ref_counts[block_id] = count
            if count == 0:
                has_hash = self._hashes[block_id] is not None
                if has_hash or index < num_kept:
                    self._cached[block_id] = None
                    if not has_hash:
                        self._kept.add(block_id)
                else:
                    self._free.append(block_id)

    def discard(self, block_ids: Iterable[int]) -> None:
        """Nobody wants the content of these blocks any more, unless its hash is asked for."""
        for block_id in block_ids:
            if block_id in self._kept:
                self._kept.remove(block_id)
                del self._cached[block_id]
                self._free.append(block_id)

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, live or cached, or ``None``."""
        return self._block_of_hash.get(block_hash)

    def set_content(self, block_id: int, block_hash: bytes) -> None:
        """Make a held, full and computed block findable.

        If another block already has the same content, that one stays the one to be found.
        """
        if block_hash not in self._block_of_hash:
            self._block_of_hash[block_hash] = block_id
            self._hashes[block_id] = block_hash

    def _evict(self) -> int:
        block_id, _ = self._cached.popitem(last=False)
        block_hash = self._hashes[block_id]
        if block_hash is None:
            self._kept.remove(block_id)
        else:
            del self._block_of_hash[block_hash]
            self._hashes[block_id] = None
        return block_id

    def check_integrity(self) -> None:
        """Check that states, counts and contents agree; for tests.

        Raises:
            RuntimeError: They do not; the message names the block.
        """
        unheld = set(self._free) | set(self._cached)
        if len(unheld) != len(self._free) + len(self._cached):
            raise RuntimeError("a block is twice in the free list or both free and cached")
        for block_id, count in enumerate(self._ref_counts):
            if (count == 0) != (block_id in unheld):
                raise RuntimeError(f"block {block_id} has {count} holders and is in a wrong list")
            block_hash = self._hashes[block_id]
            if (block_id in self._cached and block_hash is None) != (block_id in self._kept):
                raise RuntimeError(f"block {block_id} is cached without content, or kept twice")
            if block_hash is not None and self._block_of_hash.get(block_hash) != block_id:
                raise RuntimeError(f"block {block_id} cannot be found by its hash")
