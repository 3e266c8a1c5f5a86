"""Timelines as text and as SVG show what happened; the pictures in the docs are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chairlift.simulate.timeline import MODES, Timeline, TimelineSpec, run_timeline
from chairlift.simulate.timeline_svg import MAX_LANES, timelines_svg
from chairlift.simulate.timeline_text import draw_timelines

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def example(lengths: tuple[int, ...] = (2, 3, 5, 4, 6, 3), slots: int = 3) -> list[Timeline]:
    spec = TimelineSpec(lengths, (0,) * len(lengths), slots)
    return [run_timeline(spec, mode) for mode in MODES]


def lanes(timelines: list[Timeline], width: int = 80) -> list[str]:
    lines = draw_timelines(timelines, width).plain.splitlines()
    return [line.partition("|")[2].rstrip("|") for line in lines if "|" in line]


def test_text_has_one_character_per_slot_and_step() -> None:
    assert lanes(example()[:1]) == ["AA···DDDD··", "BBB··EEEEEE", "CCCCCFFF···"]
    assert lanes(example()[2:]) == ["AADDDD   ", "BBBEEEEEE", "CCCCCFFF "]


def test_text_says_steps_use_and_returns() -> None:
    text = draw_timelines(example()[2:], 80).plain
    assert "continuous: 9 steps, 23 tokens in 27 slot-steps, 85.2% of the slots used" in text
    assert "A 2, B 3, C 5, D 6, E 9, F 8" in text


def test_long_runs_are_drawn_to_a_scale_that_fits() -> None:
    timelines = example((50, 200, 2000))
    assert max(map(len, lanes(timelines, 100))) <= 90
    assert "One character is 23 steps" in draw_timelines(timelines, 100).plain


def test_slots_that_nobody_takes_are_not_drawn_over_and_over() -> None:
    assert len(lanes(example((1, 1), slots=100)[:1])) == 3


def bars(picture: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    return [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def test_picture_has_a_bar_for_every_request_and_mode() -> None:
    titles = [bar.findtext(f"{SVG}title") for bar in bars(timelines_svg(example()))]
    assert len(titles) == 18
    assert "D: 4 tokens, steps 3 to 6, returned after step 6" in titles


def test_bars_are_as_long_as_the_requests() -> None:
    widths = [float(bar.attrib["width"]) + 1 for bar in bars(timelines_svg(example()[2:]))]
    assert [width / widths[0] * 2 for width in widths] == pytest.approx(
        [2, 3, 5, 4, 6, 3], rel=0.01
    )


def test_picture_hatches_slots_that_wait_for_the_batch() -> None:
    static, _, continuous = example()
    assert timelines_svg([static]).count('fill="url(#idle)"') == 4
    assert 'fill="url(#idle)"' not in timelines_svg([continuous])


def test_picture_adapts_to_dark_pages_and_names_its_content() -> None:
    picture = timelines_svg(example())
    assert "prefers-color-scheme:dark" in picture
    assert 'aria-label="static batching: 11 steps;' in picture


def test_a_picture_of_very_many_slots_stays_readable() -> None:
    picture = timelines_svg(example((3,) * 200, slots=200)[2:])
    assert len(bars(picture)) == MAX_LANES


def test_the_pictures_in_the_docs_are_current() -> None:
    spec = importlib.util.spec_from_file_location("draw_timelines", DOCS / "draw_timelines.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, picture in script.draw().items():
        assert (DOCS / "images" / name).read_text(encoding="utf-8") == picture, "run: make docs"
