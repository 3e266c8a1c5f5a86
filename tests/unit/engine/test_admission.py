"""The bounded line and its estimate of when to come back."""

from __future__ import annotations

import pytest

from chairlift.engine.admission import Admission
from chairlift.errors import EngineOverloadedError, StartTooLateError


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _retry_after_s(admission: Admission, num_waiting: int, num_new: int = 1) -> float:
    with pytest.raises(EngineOverloadedError) as info:
        admission.check(num_waiting, num_new)
    return info.value.retry_after_s


def test_the_line_takes_requests_up_to_its_bound() -> None:
    admission = Admission(3)
    admission.check(num_waiting=2, num_new=1)
    with pytest.raises(EngineOverloadedError, match="3 requests are waiting, of at most 3"):
        admission.check(num_waiting=3, num_new=1)


def test_an_empty_line_takes_a_request_of_more_choices_than_its_bound() -> None:
    Admission(3).check(num_waiting=0, num_new=8)
    with pytest.raises(EngineOverloadedError):
        Admission(3).check(num_waiting=1, num_new=8)


def test_the_wait_follows_the_measured_rate() -> None:
    clock = Clock()
    admission = Admission(4, clock=clock)
    for second in range(1, 21):
        clock.now_s = float(second)
        admission.count_finished(1)
    clock.now_s = 21.0  # 20 finished in the 20 seconds since the first: one a second
    assert _retry_after_s(admission, num_waiting=4) == pytest.approx(1.0)
    assert _retry_after_s(admission, num_waiting=4, num_new=12) == pytest.approx(12.0)


def test_the_wait_is_at_least_a_second_and_at_most_ten_minutes() -> None:
    clock = Clock()
    admission = Admission(1, clock=clock)
    admission.count_finished(200)
    clock.now_s = 1.0
    assert _retry_after_s(admission, num_waiting=1) == 1.0
    assert _retry_after_s(admission, num_waiting=1, num_new=10**6) == 600.0


def test_what_finished_long_ago_says_nothing_about_now() -> None:
    clock = Clock()
    admission = Admission(1, clock=clock)
    unknown = _retry_after_s(admission, num_waiting=1)
    admission.count_finished(200)
    clock.now_s = 3600.0
    assert _retry_after_s(admission, num_waiting=1) == unknown


def test_a_start_that_is_foretold_too_late_is_refused_with_the_time_it_is_late() -> None:
    admission = Admission(4, target_ttft_s=2.0)
    admission.check_start(2.0)
    with pytest.raises(StartTooLateError, match=r"start in 5\.5 s.*2 s \(target_ttft\)") as info:
        admission.check_start(5.5)
    assert info.value.retry_after_s == 3.5


def test_without_a_target_no_start_is_too_late() -> None:
    Admission(4).check_start(1e9)
