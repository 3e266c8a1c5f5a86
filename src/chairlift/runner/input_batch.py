"""Tokens and block tables of all requests the runner knows, and the flat batch of each step.

State is kept in persistent arrays with one row (slot) per request, so that building a batch is a
handful of numpy calls however many tokens it has. Knows nothing about sampling or about the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chairlift.core.scheduler_output import NewRequest, ScheduledRequest
from chairlift.kernels.cpu_model import FlatBatch

_FIRST_TOKEN_COLUMNS = 256
_FIRST_BLOCK_COLUMNS = 16


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The batch of one step, and which of its rows are sampled.

    Attributes:
        flat: What the model computes.
        slots: Slot of each request in the batch. [num_reqs] int64.
        sampled_slots: Slots of the requests that yield a token, in order. [num_sampled] int32.
        logits_rows: Row of the flat batch whose logits each of those samples from.
            [num_sampled] int32.
        output_positions: How many output tokens each of those has already: the index of the one
            sampled now. [num_sampled] int32.
        sampled_request_ids: Ids of the same requests.
    """

    flat: FlatBatch
    slots: npt.NDArray[np.int64]
    sampled_slots: npt.NDArray[np.int32]
    logits_rows: npt.NDArray[np.int32]
    output_positions: npt.NDArray[np.int32]
    sampled_request_ids: tuple[str, ...]


class InputBatch:
    """Persistent arrays, a slot per registered request.

    Slots are added when all are taken, token and block columns when a request grows past them, all
    in doublings.

    Args:
        num_slots: Requests expected at once: the scheduler's ``max_num_seqs``. Preempted requests
            keep their slots, so there can be more.
        block_size: Tokens per KV block.
    """

    def __init__(self, num_slots: int, block_size: int) -> None:
        self._block_size = block_size
        self._slot_of: dict[str, int] = {}
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._tokens = np.zeros((num_slots, _FIRST_TOKEN_COLUMNS), np.int32)
        self._tables = np.zeros((num_slots, _FIRST_BLOCK_COLUMNS), np.int32)
        self._num_tokens = np.zeros(num_slots, np.int64)
        self._num_prompt_tokens = np.zeros(num_slots, np.int64)
        self._num_blocks = [0] * num_slots

    @property
    def num_requests(self) -> int:
        """Requests registered now."""
        return len(self._slot_of)

    def register(self, new: NewRequest) -> int:
        """Give a request a slot and remember its tokens.

        Raises:
            ValueError: Its id is registered already: the plan is wrong.
        """
        request_id = new.request.request_id
        if request_id in self._slot_of:
            raise ValueError(f"request {request_id} is registered already")
        if not self._free_slots:
            self._double_slots()
        slot = self._free_slots.pop()
        self._slot_of[request_id] = slot
        token_ids = new.request.prompt_token_ids + new.output_token_ids
        # One column more, for the token that is sampled next.
        self._tokens = _with_columns(self._tokens, len(token_ids) + 1)
        self._tokens[slot, : len(token_ids)] = token_ids
        self._num_tokens[slot] = len(token_ids)
        self._num_prompt_tokens[slot] = len(new.request.prompt_token_ids)
        self._num_blocks[slot] = 0
        return slot

    def forget(self, request_id: str) -> int | None:
        """Free the slot of a request and return it; ``None`` if the request is not registered."""
        slot = self._slot_of.pop(request_id, None)
        if slot is not None:
            self._free_slots.append(slot)
        return slot

    def token_ids(self, slot: int, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Tokens ``start`` up to ``stop`` of a slot, those not known left out. A view."""
        return self._tokens[slot, start : min(stop, int(self._num_tokens[slot]))]

    def num_prompt_tokens(self, slot: int) -> int:
        """Length of the prompt in a slot."""
        return int(self._num_prompt_tokens[slot])

    def build(self, scheduled: list[ScheduledRequest]) -> StepInputs:
        """Make the flat batch of a step.

        Args:
            scheduled: Rows of the plan, at least one, all of registered requests.

        Raises:
            KeyError: A request is not registered.
        """
        request_ids, computed, counts, _, _, yields = zip(*scheduled, strict=True)
        slot_list = list(map(self._slot_of.__getitem__, request_ids))
        self._update_tables(scheduled, slot_list)
        slots, num_computed, num_scheduled = np.array((slot_list, computed, counts), np.int64)
        query_start_loc = np.zeros(len(slot_list) + 1, np.int32)
        np.cumsum(num_scheduled, out=query_start_loc[1:])
        seq_lens = num_computed + num_scheduled
        sampled_slots, sampled_ends, sampled_ids = slots, query_start_loc[1:], request_ids
        if not all(yields):
            sampled = np.flatnonzero(np.array(yields, np.bool_))
            sampled_slots, sampled_ends = slots[sampled], sampled_ends[sampled]
            sampled_ids = tuple(row.request_id for row in scheduled if row.yields_token)
        num_output_tokens = self._num_tokens[sampled_slots] - self._num_prompt_tokens[sampled_slots]
        return StepInputs(
            flat=self._flatten(slots, num_computed, num_scheduled, query_start_loc, seq_lens),
            slots=slots,
            sampled_slots=sampled_slots.astype(np.int32),
            logits_rows=sampled_ends - np.int32(1),
            output_positions=num_output_tokens.astype(np.int32),
            sampled_request_ids=sampled_ids,
        )

    def append(
        self, sampled_slots: npt.NDArray[np.int32], token_ids: npt.NDArray[np.int32]
    ) -> None:
        """Add one sampled token to each of some slots. Both [num_sampled]."""
        if not len(sampled_slots):
            return
        columns = self._num_tokens[sampled_slots]
        self._tokens[sampled_slots, columns] = token_ids
        columns += 1
        self._num_tokens[sampled_slots] = columns
        self._tokens = _with_columns(self._tokens, int(columns.max()) + 1)

    def _double_slots(self) -> None:
        num_slots = len(self._num_blocks)
        self._free_slots = list(range(2 * num_slots - 1, num_slots - 1, -1))
        self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
        self._tables = np.concatenate((self._tables, np.zeros_like(self._tables)))
        self._num_tokens = np.concatenate((self._num_tokens, np.zeros_like(self._num_tokens)))
        self._num_prompt_tokens = np.concatenate(
            (self._num_prompt_tokens, np.zeros_like(self._num_prompt_tokens))
        )
        self._num_blocks += [0] * num_slots

    def _update_tables(self, scheduled: list[ScheduledRequest], slots: list[int]) -> None:
        for slot, row in zip(slots, scheduled, strict=True):
            new_block_ids = row.new_block_ids
            if not new_block_ids and not row.replace_blocks:
                continue
            start = 0 if row.replace_blocks else self._num_blocks[slot]
            stop = start + len(new_block_ids)
            self._tables = _with_columns(self._tables, stop)
            self._tables[slot, start:stop] = new_block_ids
            self._num_blocks[slot] = stop

    def _flatten(
        self,
        slots: npt.NDArray[np.int64],
        num_computed: npt.NDArray[np.int64],
        num_scheduled: npt.NDArray[np.int64],
        query_start_loc: npt.NDArray[np.int32],
        seq_lens: npt.NDArray[np.int64],
    ) -> FlatBatch:
        if int(query_start_loc[-1]) == len(slots):  # decodes only: one token each
            token_slots, positions = slots, num_computed
        else:
            token_slots = np.repeat(slots, num_scheduled)
            first_positions = num_computed - query_start_loc[:-1]
            positions = np.repeat(first_positions, num_scheduled) + np.arange(len(token_slots))
        blocks, offsets = np.divmod(positions, self._block_size)
        num_columns = -(-int(seq_lens.max()) // self._block_size)
        return FlatBatch(
            token_ids=self._tokens[token_slots, positions],
            positions=positions.astype(np.int32),
            query_start_loc=query_start_loc,
            seq_lens=seq_lens.astype(np.int32),
            block_tables=self._tables[:, :num_columns].take(slots, axis=0),
            slot_mapping=self._tables[token_slots, blocks] * np.int64(self._block_size) + offsets,
        )


def _with_columns(array: npt.NDArray[np.int32], num_columns: int) -> npt.NDArray[np.int32]:
    """The array itself if it has so many columns, else a copy with at least twice as many."""
    num_rows, num_old = array.shape
    if num_columns <= num_old:
        return array
    wider = np.zeros((num_rows, max(num_columns, 2 * num_old)), np.int32)
    wider[:, :num_old] = array
    return wider
