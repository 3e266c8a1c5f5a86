"""Whether another request may join the line, and when to come back if not."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from chairlift.errors import EngineOverloadedError, StartTooLateError

_REMEMBERED_FINISHES = 256
_WINDOW_S = 60.0
_MIN_RETRY_S = 1.0
_MAX_RETRY_S = 600.0
_UNKNOWN_RETRY_S = 5.0


class Admission:
    """Bounds the number of waiting choices, and measures how fast they drain.

    Args:
        max_num_waiting: Most choices waiting.
        target_ttft_s: Longest foretold wait for a start, in seconds; 0: no limit.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        max_num_waiting: int,
        target_ttft_s: float = 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_num_waiting = max_num_waiting
        self._target_ttft_s = target_ttft_s
        self._clock = clock
        self._finishes_s: deque[float] = deque(maxlen=_REMEMBERED_FINISHES)

    def count_finished(self, num_choices: int) -> None:
        """Note that choices have ended now."""
        self._finishes_s.extend([self._clock()] * num_choices)

    def check(self, num_waiting: int, num_new: int) -> None:
        """Refuse choices for which there is no room.

        Args:
            num_waiting: Choices waiting now.
            num_new: Choices that want to join.

        Raises:
            EngineOverloadedError: They would be too many. An empty line takes any number, so that
                a request with more choices than ``max_num_waiting`` is not refused for ever.
        """
        excess = num_waiting + num_new - self._max_num_waiting
        if excess <= 0 or num_waiting == 0:
            return
        raise EngineOverloadedError(
            f"{num_waiting} requests are waiting, of at most {self._max_num_waiting} "
            "(max_num_waiting); try again later",
            retry_after_s=self.retry_after_s(excess),
        )

    def check_start(self, delay_s: float) -> None:
        """Refuse a choice that is foretold to start in ``delay_s`` seconds, if that is too late.

        Raises:
            StartTooLateError: It is.
        """
        if self._target_ttft_s > 0.0 and delay_s > self._target_ttft_s:
            raise StartTooLateError(
                f"the request would start in {delay_s:.1f} s, later than within "
                f"{self._target_ttft_s:g} s (target_ttft); try again later",
                retry_after_s=min(delay_s - self._target_ttft_s, _MAX_RETRY_S),
            )

    def retry_after_s(self, excess: int) -> float:
        """Seconds in which so many choices will have ended, at the rate of the last minute."""
        now_s = self._clock()
        while self._finishes_s and self._finishes_s[0] < now_s - _WINDOW_S:
            self._finishes_s.popleft()
        if not self._finishes_s:
            return _UNKNOWN_RETRY_S
        per_second = len(self._finishes_s) / max(now_s - self._finishes_s[0], 1e-3)
        return min(max(excess / per_second, _MIN_RETRY_S), _MAX_RETRY_S)
