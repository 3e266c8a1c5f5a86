"""KV that preempted requests have left behind: where each block of it is now.

A preempted request's blocks go back to the pool like all others and are handed out when somebody
needs one. Until then the request can take them up again. What is handed out is copied to the second
tier first, if the request is to be swapped and there is room; so exactly as many blocks are copied
as others needed, and nothing is kept from them. Otherwise the block is lost, and all after it are
of no use, since a request goes on from the end of an unbroken run of computed tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from chairlift.core.scheduler_output import BlockCopy


@dataclass(slots=True)
class Remains:
    """What one request left behind, block by block in the order of its tokens.

    Attributes:
        num_tokens: Computed tokens in all of it; the last block may be filled in part.
        is_swapped: Blocks are copied to the second tier before others get them.
        blocks: The pool block where the content still is, or ``None``.
        slots: The slot of the second tier where it is, or ``None``. Exactly one of the two is set.
    """

    num_tokens: int
    is_swapped: bool
    blocks: list[int | None]
    slots: list[int | None] = field(default_factory=list)


_Owner = tuple[str, int]
"""A request and the index of one of its blocks."""


class LeftBehind:
    """Keeps the remains of preempted requests, and the slots of the second tier.

    Several requests may have left the same block behind, since full ones are shared.

    Args:
        num_slots: Blocks that the second tier holds.
        block_size: Tokens per block.
    """

    def __init__(self, num_slots: int, block_size: int) -> None:
        self.num_slots = num_slots
        self._block_size = block_size
        self._remains: dict[str, Remains] = {}
        self._owners_of_block: dict[int, list[_Owner]] = {}
        self._owners_of_slot: dict[int, list[_Owner]] = {}
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._freed_slots: list[int] = []  # to be used again from the next step on
        self._written_slots: set[int] = set()  # in this step

    @property
    def is_empty(self) -> bool:
        """Nobody has left anything behind."""
        return not self._remains

    @property
    def num_used_slots(self) -> int:
        """Slots of the second tier with content that somebody may want."""
        return len(self._owners_of_slot)

    def begin_step(self) -> None:
        """The copies of the step before have been made: slots given up since are free."""
        self._free_slots += self._freed_slots
        self._freed_slots.clear()
        self._written_slots.clear()

    def of(self, request_id: str) -> Remains | None:
        """What there is left of a request."""
        return self._remains.get(request_id)

    def leave(
        self, request_id: str, block_ids: list[int], num_tokens: int, is_swapped: bool
    ) -> None:
        """A request lets go of blocks with so many computed tokens."""
        blocks: list[int | None] = [*block_ids]
        self._remains[request_id] = Remains(num_tokens, is_swapped, blocks, [None] * len(blocks))
        for index, block_id in enumerate(block_ids):
            self._owners_of_block.setdefault(block_id, []).append((request_id, index))

    def handed_out(self, block_ids: Iterable[int]) -> tuple[list[BlockCopy], list[int]]:
        """Blocks of the pool have been given to somebody who will write over them.

        Returns:
            The copies to be made before that, and blocks that nobody has left behind any more.
        """
        copies: list[BlockCopy] = []
        dropped: list[int] = []
        if self._owners_of_block:
            for block_id in block_ids:
                owners = self._owners_of_block.get(block_id)
                if owners is None:
                    continue
                slot = self._slot_for(owners, dropped)
                if slot is None:
                    dropped += self._lose(owners)
                else:
                    self._move(owners, slot)
                    del self._owners_of_block[block_id]
                    copies.append(BlockCopy(block_id, slot))
        return copies, dropped

    def forget(self, request_id: str) -> list[int]:
        """A request has taken what it can use of its remains, or has ended.

        Returns:
            Blocks that nobody has left behind any more.
        """
        if request_id not in self._remains:
            return []
        dropped = self._cut(request_id, 0)
        del self._remains[request_id]
        return dropped

    def copies_failed(self, copies: Iterable[BlockCopy]) -> list[int]:
        """Copies to the second tier were not made, and their blocks have been written over.

        Returns:
            Blocks that nobody has left behind any more.
        """
        dropped: list[int] = []
        for copy in copies:
            dropped += self._lose(self._owners_of_slot.get(copy.slot, []))
        return dropped

    def _slot_for(self, owners: list[_Owner], dropped: list[int]) -> int | None:
        """A slot for a block, if it is to be copied.

        If none is free, that of the last block of the same request which has one: the beginning is
        worth more than the end. What is dropped for that is added to ``dropped``.
        """
        if not any(self._remains[request_id].is_swapped for request_id, _ in owners):
            return None
        if self._free_slots:
            return self._free_slots.pop()
        request_id, start = owners[0]
        slots = self._remains[request_id].slots
        for index in range(len(slots) - 1, start, -1):
            slot = slots[index]
            if slot is None or slot in self._written_slots or len(self._owners_of_slot[slot]) > 1:
                continue
            dropped += self._cut(request_id, index)
            self._freed_slots.remove(slot)
            return slot
        return None

    def _move(self, owners: list[_Owner], slot: int) -> None:
        self._owners_of_slot[slot] = owners
        self._written_slots.add(slot)
        for request_id, index in owners:
            remains = self._remains[request_id]
            remains.blocks[index], remains.slots[index] = None, slot

    def _lose(self, owners: list[_Owner]) -> list[int]:
        return [
            block_id
            for request_id, index in list(owners)
            for block_id in self._cut(request_id, index)
        ]

    def _cut(self, request_id: str, start: int) -> list[int]:
        """Give up the blocks of a request from an index on; returns those that nobody else left."""
        remains = self._remains[request_id]
        dropped = []
        for index in range(start, len(remains.blocks)):
            block_id, slot = remains.blocks[index], remains.slots[index]
            if block_id is not None and self._disown(
                self._owners_of_block, block_id, (request_id, index)
            ):
                dropped.append(block_id)
            if slot is not None and self._disown(self._owners_of_slot, slot, (request_id, index)):
                self._freed_slots.append(slot)
        del remains.blocks[start:], remains.slots[start:]
        remains.num_tokens = min(remains.num_tokens, start * self._block_size)
        return dropped

    @staticmethod
    def _disown(owners_of: dict[int, list[_Owner]], place: int, owner: _Owner) -> bool:
        """Take an owner from a place; returns whether it was the last."""
        owners = owners_of[place]
        owners.remove(owner)
        if owners:
            return False
        del owners_of[place]
        return True

    def check_integrity(self) -> None:
        """Check that slots add up and owners agree with remains; for tests.

        Raises:
            RuntimeError: They do not.
        """
        slots = [*self._free_slots, *self._freed_slots, *self._owners_of_slot]
        if sorted(slots) != list(range(self.num_slots)):
            raise RuntimeError(f"slots are lost or counted twice: {sorted(slots)}")
        found: dict[tuple[str, int], list[_Owner]] = {}
        for request_id, remains in self._remains.items():
            for index, (block, slot) in enumerate(zip(remains.blocks, remains.slots, strict=True)):
                if (block is None) == (slot is None):
                    raise RuntimeError(f"block {index} of {request_id} is in two places or none")
                place = ("block", block) if block is not None else ("slot", slot or 0)
                found.setdefault(place, []).append((request_id, index))
        known = {("block", place): owners for place, owners in self._owners_of_block.items()}
        known |= {("slot", place): owners for place, owners in self._owners_of_slot.items()}
        if {k: sorted(v) for k, v in known.items()} != {k: sorted(v) for k, v in found.items()}:
            raise RuntimeError("owners and remains do not agree")
