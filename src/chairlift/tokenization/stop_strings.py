"""Find stop strings in a stream of text without giving away the start of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from chairlift.errors import InvalidParameterError


class StopCheck(NamedTuple):
    """What a piece of text led to: text that may go out, and the stop string that was found."""

    text: str
    stop: str | None = None


class StopStringMatcher:
    """Looks for stop strings in the text of one choice, as it comes.

    The stop string that is complete first ends the text; of several complete at the same
    character, the longest. So the result does not depend on how the text was cut in pieces.

    Text that could be the start of a stop string is held back until it is certain, and nothing
    else is. With ``include_stop_str_in_output`` nothing has to be held back.
    """

    def __init__(self, stops: Sequence[str], *, include_stop_str_in_output: bool = False) -> None:
        """Look for ``stops``, which may be none.

        Raises:
            InvalidParameterError: A stop string is empty: it would match everywhere.
        """
        if "" in stops:
            raise InvalidParameterError(
                "stop must hold strings of at least one character, got an empty one", param="stop"
            )
        self._stops = tuple(stops)
        first_characters = "".join(sorted({stop[0] for stop in stops}))
        self._has_start = re.compile(f"[{re.escape(first_characters)}]" if stops else "(?!)").search
        self._includes_stop = include_stop_str_in_output
        self._tail = ""  # the longest end of the text so far that could be the start of a stop
        self._found: str | None = None

    def push(self, text: str) -> StopCheck:
        """Take the next piece of text; once a stop was found, nothing more comes out."""
        if self._found is not None:
            return StopCheck("", self._found)
        if not self._tail and not self._has_start(text):
            return StopCheck(text)
        buffer = self._tail + text
        already_out = len(self._tail) if self._includes_stop else 0
        match = self._first_match(buffer)
        if match is not None:
            start, self._found = match
            end = start + len(self._found) if self._includes_stop else start
            self._tail = ""
            return StopCheck(buffer[already_out:end], self._found)
        certain = self._tail_start(buffer)
        self._tail = buffer[certain:]
        return StopCheck(buffer[already_out:] if self._includes_stop else buffer[:certain])

    def flush(self) -> str:
        """Return what was held back; the text ends here."""
        held = "" if self._includes_stop else self._tail
        self._tail = ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, str] | None:
        """Start and text of the stop string that is complete first."""
        matches = [
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := buffer.find(stop)) >= 0
        ]
        if not matches:
            return None
        _, start, stop = min(matches)
        return start, stop

    def _tail_start(self, buffer: str) -> int:
        """Where the longest end of ``buffer`` begins that a stop string begins with."""
        earliest = len(buffer)
        for stop in self._stops:
            start = buffer.find(stop[0], max(0, len(buffer) - len(stop) + 1))
            while 0 <= start < earliest:
                if stop.startswith(buffer[start:]):
                    earliest = start
                    break
                start = buffer.find(stop[0], start + 1)
        return earliest
