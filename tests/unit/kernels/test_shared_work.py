"""Members of a team deal out the items of a phase among themselves while they work."""

from __future__ import annotations

import pytest

from chairlift._native import SharedWork, ThreadTeam


def take_all(work: SharedWork, tid: int) -> list[int]:
    """Items until none is left."""
    items = []
    while (item := work.take(tid)) >= 0:
        items.append(item)
    return items


def test_members_start_with_consecutive_shares() -> None:
    work = SharedWork(3)
    for tid in range(3):
        work.begin(tid, 9)
    assert [[work.take(tid) for _ in range(3)] for tid in range(3)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]
    assert [work.take(tid) for tid in range(3)] == [-1, -1, -1]


def test_who_is_through_takes_half_of_the_longest_rest_from_the_back() -> None:
    work = SharedWork(2)
    work.begin(0, 16)
    work.begin(1, 16)
    assert [work.take(0) for _ in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 12]
    assert work.likely_next(0) == 13
    assert work.take(1) == 8
    assert work.likely_next(1) == 9
    assert take_all(work, 0) == [13, 14, 15, 10, 11, 9]
    assert work.take(1) == -1


def test_a_member_that_comes_late_finds_what_the_others_left() -> None:
    work = SharedWork(2)
    work.begin(0, 8)
    assert [work.take(0) for _ in range(5)] == [0, 1, 2, 3, 6]
    work.begin(1, 8)
    assert take_all(work, 1) == [4, 5, 7]
    work.begin(1, 8)
    assert take_all(work, 1) == [4, 5, 6, 7, 2, 3, 1, 0]
    work.begin(0, 8)
    assert take_all(work, 0) == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_members_without_a_share_of_their_own_still_help(count: int) -> None:
    work = SharedWork(4)
    for _ in range(40):  # more phases than their numbers tell apart
        for tid in range(4):
            work.begin(tid, count)
        assert sorted(take_all(work, 0)) == list(range(count))
        assert [take_all(work, tid) for tid in range(1, 4)] == [[], [], []]


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_every_item_of_every_phase_goes_to_exactly_one_member(num_threads: int) -> None:
    assert ThreadTeam(num_threads).deal_out(count=37, num_phases=300) == [300] * 37
