"""What a preempted request leaves behind stays where it is until others need the place."""

from __future__ import annotations

import pytest

from chairlift.core.left_behind import LeftBehind
from chairlift.core.scheduler_output import BlockCopy

BLOCK_SIZE = 4


def places(left: LeftBehind, request_id: str) -> list[tuple[int | None, int | None]]:
    """Pool block and slot of each block of a request."""
    remains = left.of(request_id)
    assert remains is not None
    return list(zip(remains.blocks, remains.slots, strict=True))


def left_by(request_id: str, *block_ids: int, num_slots: int = 4, swap: bool = True) -> LeftBehind:
    left = LeftBehind(num_slots, BLOCK_SIZE)
    left.leave(request_id, list(block_ids), len(block_ids) * BLOCK_SIZE - 1, swap)
    return left


def test_nothing_is_copied_before_a_block_is_handed_out() -> None:
    left = left_by("a", 7, 8, 9)
    assert left.handed_out([1, 2]) == ([], [])
    assert left.num_used_slots == 0
    assert places(left, "a") == [(7, None), (8, None), (9, None)]


def test_only_what_is_handed_out_is_copied() -> None:
    left = left_by("a", 7, 8, 9)
    assert left.handed_out([9]) == ([BlockCopy(9, 0)], [])
    assert places(left, "a") == [(7, None), (8, None), (None, 0)]
    left.check_integrity()


def test_without_swapping_a_block_that_is_handed_out_is_lost_with_all_after_it() -> None:
    left = left_by("a", 7, 8, 9, swap=False)
    assert left.handed_out([8]) == ([], [8, 9])
    remains = left.of("a")
    assert remains is not None and (remains.blocks, remains.num_tokens) == ([7], BLOCK_SIZE)
    left.check_integrity()


def test_a_full_tier_keeps_the_beginning_of_a_request_rather_than_its_end() -> None:
    left = left_by("a", 7, 8, 9, num_slots=1)
    left.handed_out([9])
    left.begin_step()
    assert left.handed_out([8]) == ([BlockCopy(8, 0)], [])
    assert places(left, "a") == [(7, None), (None, 0)]
    left.check_integrity()


def test_a_slot_written_in_this_step_is_not_written_again_in_it() -> None:
    left = left_by("a", 7, 8, num_slots=1)
    copies, dropped = left.handed_out([8, 7])
    assert copies == [BlockCopy(8, 0)]
    assert dropped == [7]
    assert places(left, "a") == []
    left.check_integrity()


def test_a_slot_given_up_is_used_again_only_in_the_next_step() -> None:
    left = left_by("a", 7, num_slots=1)
    left.handed_out([7])
    left.forget("a")
    left.leave("b", [3], BLOCK_SIZE, True)
    left.leave("c", [4], BLOCK_SIZE, True)
    assert left.handed_out([3]) == ([], [3])
    left.begin_step()
    assert left.handed_out([4]) == ([BlockCopy(4, 0)], [])


def test_a_shared_block_is_copied_once_for_all_who_left_it() -> None:
    left = left_by("a", 7, 8, swap=False)
    left.leave("b", [7, 9], 2 * BLOCK_SIZE, True)
    assert left.handed_out([7]) == ([BlockCopy(7, 0)], [])
    assert places(left, "a")[0] == places(left, "b")[0] == (None, 0)
    assert left.forget("a") == [8]
    assert left.num_used_slots == 1
    assert left.forget("b") == [9]
    assert left.num_used_slots == 0
    left.check_integrity()


def test_copies_that_failed_are_lost_with_all_after_them() -> None:
    left = left_by("a", 7, 8, 9)
    copies, _ = left.handed_out([8])
    assert left.copies_failed(copies) == [9]
    remains = left.of("a")
    assert remains is not None and (remains.blocks, remains.num_tokens) == ([7], BLOCK_SIZE)
    left.check_integrity()


def test_forgetting_a_request_that_left_nothing_does_nothing() -> None:
    left = LeftBehind(1, BLOCK_SIZE)
    assert left.forget("a") == []
    assert left.is_empty


def test_a_slot_counted_twice_is_found() -> None:
    left = left_by("a", 7)
    left.handed_out([7])
    left._free_slots.append(0)
    with pytest.raises(RuntimeError, match="counted twice"):
        left.check_integrity()
