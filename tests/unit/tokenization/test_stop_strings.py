"""Stop strings in streams: found at once, given away never."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.errors import InvalidParameterError
from chairlift.tokenization.stop_strings import StopCheck, StopStringMatcher


def outcome(
    pieces: Sequence[str], stops: Sequence[str], *, include: bool = False
) -> tuple[str, str | None]:
    """Text given out and stop string found when the pieces come one after the other."""
    matcher = StopStringMatcher(stops, include_stop_str_in_output=include)
    text = ""
    for piece in pieces:
        safe, stop = matcher.push(piece)
        text += safe
        if stop is not None:
            return text, stop
    return text + matcher.flush(), None


def naive_outcome(text: str, stops: Sequence[str], *, include: bool) -> tuple[str, str | None]:
    """The same by looking at every beginning of the whole text."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


few_letters = st.text(alphabet="ab\n", max_size=30)
some_stops = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4)


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@settings(deadline=None)
@given(few_letters, some_stops, st.lists(st.integers(0, 30), max_size=8), st.booleans())
def test_the_outcome_is_that_of_the_whole_text_however_it_is_cut(
    text: str, stops: list[str], places: list[int], include: bool
) -> None:
    expected = naive_outcome(text, stops, include=include)
    assert outcome(cut(text, places), stops, include=include) == expected


@settings(deadline=None)
@given(few_letters, some_stops)
def test_only_what_could_start_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopStringMatcher(stops)
    out = ""
    for i, character in enumerate(text):
        safe, stop = matcher.push(character)
        if stop is not None:
            return
        out += safe
        seen = text[: i + 1]
        starts = [n for n in range(len(seen) + 1) if any(s.startswith(seen[n:]) for s in stops)]
        assert out == (seen[: min(starts)] if starts else seen)


def test_text_that_starts_no_stop_string_goes_out_at_once() -> None:
    matcher = StopStringMatcher(["DEFGHIJ"])
    assert matcher.push("ABC") == StopCheck("ABC")
    assert matcher.push("DE") == StopCheck("")
    assert matcher.push("FX") == StopCheck("DEFX")


def test_nothing_of_a_stop_string_in_pieces_goes_out() -> None:
    matcher = StopStringMatcher(["DEFGHIJ"])
    pieces = [matcher.push(piece) for piece in ("ABC", "D", "EFGH", "IJK")]
    assert pieces == [("ABC", None), ("", None), ("", None), ("", "DEFGHIJ")]
    assert matcher.flush() == ""


def test_what_is_held_back_goes_out_at_the_end() -> None:
    matcher = StopStringMatcher(["\n\nUser:"])
    assert matcher.push("Bye.\n\nUse") == StopCheck("Bye.")
    assert matcher.flush() == "\n\nUse"
    assert matcher.flush() == ""


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert outcome(["xabcd"], ["abcd", "bc"]) == ("xa", "bc")
    assert outcome(["xabc"], ["c", "abc"]) == ("x", "abc")


def test_nothing_is_held_back_where_stop_strings_belong_to_the_output() -> None:
    matcher = StopStringMatcher(["END"], include_stop_str_in_output=True)
    pieces = [matcher.push(piece) for piece in ("aE", "N", "Db")]
    assert pieces == [("aE", None), ("N", None), ("D", "END")]


def test_after_a_stop_string_nothing_comes_out() -> None:
    matcher = StopStringMatcher(["."])
    assert matcher.push("a.b") == StopCheck("a", ".")
    assert matcher.push("c") == StopCheck("", ".")


@pytest.mark.parametrize("stop", ["^", "]", "-", "\\", "[a-z]", "\n"])
def test_characters_that_mean_something_in_patterns_are_plain_text(stop: str) -> None:
    assert outcome(["x", f"y{stop[:1]}", f"{stop[1:]}z"], [stop]) == ("xy", stop)


def test_without_stop_strings_text_passes_through() -> None:
    assert outcome(["a", "", "b"], []) == ("ab", None)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="at least one character") as caught:
        StopStringMatcher(["a", ""])
    assert caught.value.param == "stop"
