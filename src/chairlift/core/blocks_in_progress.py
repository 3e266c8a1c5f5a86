"""Contents of KV blocks that running requests are about to compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MIN_BLOCKS_TO_AWAIT = 4
"""With fewer, computing them again takes no longer than waiting for a step."""


class BlocksInProgress:
    """Who is going to compute which full blocks of its prompt, so that others can wait for them."""

    def __init__(self) -> None:
        self._owner_of: dict[bytes, str] = {}
        self._hashes_of: dict[str, Sequence[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._owner_of)

    def started(self, request_id: str, block_hashes: Sequence[bytes]) -> None:
        """A request runs that will compute blocks with these contents, in this order."""
        self._hashes_of[request_id] = block_hashes
        for block_hash in block_hashes:
            self._owner_of.setdefault(block_hash, request_id)

    def computed(self, block_hashes: Iterable[bytes]) -> None:
        """These are there now."""
        for block_hash in block_hashes:
            self._owner_of.pop(block_hash, None)

    def stopped(self, request_id: str) -> None:
        """A request runs no more: what it has not computed, it will not."""
        for block_hash in self._hashes_of.pop(request_id, ()):
            if self._owner_of.get(block_hash) == request_id:
                del self._owner_of[block_hash]

    def are_worth_awaiting(self, block_hashes: Sequence[bytes]) -> bool:
        """Whether enough of the next blocks of a prompt are on their way."""
        first = block_hashes[:MIN_BLOCKS_TO_AWAIT]
        return len(first) == MIN_BLOCKS_TO_AWAIT and all(h in self._owner_of for h in first)
