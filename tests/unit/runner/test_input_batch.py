"""The flat batch of a step, against one written out by hand and one made token by token."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.fakes import make_request

from chairlift.core.scheduler_output import NewRequest, ScheduledRequest
from chairlift.runner.input_batch import InputBatch, StepInputs


def _new(request_id: str, prompt: list[int]) -> NewRequest:
    return NewRequest(make_request(request_id, prompt))


def _append(batch: InputBatch, inputs: StepInputs, *token_ids: int) -> None:
    batch.append(inputs.sampled_slots, np.array(token_ids, np.int32))


def test_a_mixed_step_is_laid_out_end_to_end() -> None:
    batch = InputBatch(num_slots=4, block_size=4)
    batch.register(_new("a", [10, 11, 12, 13, 14]))
    first = batch.build([ScheduledRequest("a", 0, 5, (7, 2), True, True)])
    _append(batch, first, 15)
    batch.register(_new("b", [20, 21, 22, 23, 24, 25]))

    inputs = batch.build(
        [
            ScheduledRequest("a", 5, 1, (), False, True),
            ScheduledRequest("b", 0, 4, (3, 5), True, False),
        ]
    )

    flat = inputs.flat
    assert flat.token_ids.tolist() == [15, 20, 21, 22, 23]
    assert flat.positions.tolist() == [5, 0, 1, 2, 3]
    assert flat.query_start_loc.tolist() == [0, 1, 5]
    assert flat.seq_lens.tolist() == [6, 4]
    assert flat.block_tables[0].tolist() == [7, 2]
    assert flat.block_tables[1, 0] == 3
    assert flat.slot_mapping.tolist() == [2 * 4 + 1, 12, 13, 14, 15]
    assert inputs.logits_rows.tolist() == [0]
    assert inputs.output_positions.tolist() == [1]
    assert inputs.sampled_request_ids == ("a",)


def test_arrays_have_the_dtypes_and_layout_that_the_kernels_take() -> None:
    batch = InputBatch(num_slots=2, block_size=4)
    batch.register(_new("a", [1, 2, 3]))
    inputs = batch.build([ScheduledRequest("a", 0, 3, (0,), True, True)])
    flat = inputs.flat
    for array in (flat.token_ids, flat.positions, flat.query_start_loc, flat.seq_lens):
        assert array.dtype == np.int32
    for array in (inputs.sampled_slots, inputs.logits_rows, inputs.output_positions):
        assert array.dtype == np.int32
    assert flat.block_tables.dtype == np.int32
    assert flat.block_tables.flags.c_contiguous
    assert flat.slot_mapping.dtype == np.int64


def test_a_request_that_comes_back_has_its_tokens_and_a_whole_new_table() -> None:
    batch = InputBatch(num_slots=1, block_size=2)
    batch.register(_new("a", [10, 11, 12]))
    _append(batch, batch.build([ScheduledRequest("a", 0, 3, (4, 5), True, True)]), 13)

    flat = batch.build([ScheduledRequest("a", 0, 4, (1, 0), True, True)]).flat

    assert flat.token_ids.tolist() == [10, 11, 12, 13]
    assert flat.slot_mapping.tolist() == [2, 3, 0, 1]


def test_a_replayed_request_starts_with_its_output_tokens() -> None:
    batch = InputBatch(num_slots=1, block_size=4)
    batch.register(NewRequest(make_request("a", [10, 11]), output_token_ids=(12, 13)))
    inputs = batch.build([ScheduledRequest("a", 0, 4, (0,), True, True)])
    assert inputs.flat.token_ids.tolist() == [10, 11, 12, 13]
    assert inputs.output_positions.tolist() == [2]


def test_a_forgotten_slot_is_used_again() -> None:
    batch = InputBatch(num_slots=1, block_size=4)
    slot = batch.register(_new("a", [1, 2, 3]))
    assert batch.forget("a") == slot
    assert batch.register(_new("b", [4])) == slot
    flat = batch.build([ScheduledRequest("b", 0, 1, (2,), True, True)]).flat
    assert (flat.token_ids.tolist(), flat.slot_mapping.tolist()) == ([4], [8])


def test_forgetting_an_unknown_request_does_nothing() -> None:
    assert InputBatch(num_slots=1, block_size=4).forget("x") is None


def test_request_id_is_registered_only_once() -> None:
    batch = InputBatch(num_slots=1, block_size=4)
    batch.register(_new("a", [1]))
    with pytest.raises(ValueError, match="registered already"):
        batch.register(_new("a", [1]))


def test_more_requests_than_expected_get_slots_and_leave_the_others_theirs() -> None:
    batch = InputBatch(num_slots=1, block_size=4)
    slots = [batch.register(_new(f"r{i}", [i, i + 1])) for i in range(5)]
    assert len(set(slots)) == 5
    assert [batch.token_ids(slot, 0, 9).tolist() for slot in slots] == [
        [i, i + 1] for i in range(5)
    ]


@dataclass
class _Model:
    """One request, token by token."""

    tokens: list[int]
    num_prompt_tokens: int
    computed: int = 0
    table: list[int] = field(default_factory=list)


def test_any_history_gives_the_batch_made_token_by_token() -> None:
    rng = random.Random(1)
    block_size, num_slots = 3, 6
    batch = InputBatch(num_slots, block_size)
    models: dict[str, _Model] = {}
    free_blocks = list(range(2000))
    for step in range(300):
        while len(models) < num_slots and rng.random() < 0.5:
            request_id = f"r{step}-{len(models)}"
            prompt = [rng.randrange(1000) for _ in range(rng.randrange(1, 400))]
            batch.register(_new(request_id, prompt))
            models[request_id] = _Model(prompt, len(prompt))
        if not models:
            continue
        rows = []
        for request_id, model in models.items():
            replaces = model.computed == 0 or rng.random() < 0.05
            if replaces:
                model.computed = 0
                free_blocks += model.table
                model.table = []
            count = min(len(model.tokens) - model.computed, rng.randrange(1, 150))
            end = model.computed + count
            missing = -(-end // block_size) - len(model.table)
            new_blocks = tuple(free_blocks.pop(rng.randrange(100)) for _ in range(missing))
            model.table += new_blocks
            is_last = end == len(model.tokens)
            rows.append(
                ScheduledRequest(request_id, model.computed, count, new_blocks, replaces, is_last)
            )
        inputs = batch.build(rows)
        _check(inputs, rows, models, block_size)
        for row in rows:
            models[row.request_id].computed += row.num_scheduled_tokens
        sampled = [row.request_id for row in rows if row.yields_token]
        new_ids = [rng.randrange(1000) for _ in sampled]
        _append(batch, inputs, *new_ids)
        for request_id, token_id in zip(sampled, new_ids, strict=True):
            models[request_id].tokens.append(token_id)
            if rng.random() < 0.1:
                batch.forget(request_id)
                free_blocks += models.pop(request_id).table


def _check(
    inputs: StepInputs,
    rows: list[ScheduledRequest],
    models: dict[str, _Model],
    block_size: int,
) -> None:
    tokens, positions, slots, starts = [], [], [], [0]
    for index, row in enumerate(rows):
        model = models[row.request_id]
        for position in range(
            row.num_computed_tokens, row.num_computed_tokens + row.num_scheduled_tokens
        ):
            tokens.append(model.tokens[position])
            positions.append(position)
            block = model.table[position // block_size]
            slots.append(block * block_size + position % block_size)
        starts.append(len(tokens))
        assert inputs.flat.block_tables[index, : len(model.table)].tolist() == model.table
    yielding = [(i, models[row.request_id]) for i, row in enumerate(rows) if row.yields_token]
    assert inputs.flat.token_ids.tolist() == tokens
    assert inputs.flat.positions.tolist() == positions
    assert inputs.flat.slot_mapping.tolist() == slots
    assert inputs.flat.query_start_loc.tolist() == starts
    assert inputs.logits_rows.tolist() == [starts[i + 1] - 1 for i, _ in yielding]
    assert inputs.output_positions.tolist() == [
        len(model.tokens) - model.num_prompt_tokens for _, model in yielding
    ]
