"""Charts put every point where its values say."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from chairlift.workload.chart import Chart, Series, charts_svg

SVG = "{http://www.w3.org/2000/svg}"


def dots(chart: Chart) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(charts_svg([chart]))
    return [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]


def line(*points: tuple[float, float], **fields: object) -> Chart:
    return Chart("t", "x", (Series("s", points),), **fields)  # type: ignore[arg-type]


def test_linear_points_lie_in_proportion() -> None:
    (x0, y0), (x1, y1), (x2, y2) = dots(line((0, 0), (5, 20), (10, 40)))
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(y1 - y2)
    assert y2 < y1 < y0


def test_logarithmic_decades_are_equally_high() -> None:
    (_, y0), (_, y1), (_, y2) = dots(line((0, 1), (1, 10), (2, 100), is_log=True))
    assert y0 - y1 == pytest.approx(y1 - y2)


def test_points_that_cannot_be_drawn_are_left_out() -> None:
    assert len(dots(line((0, 1), (1, math.nan), (2, math.inf), (3, 2)))) == 2
    assert len(dots(line((0, 0), (1, 10), is_log=True))) == 1


def test_a_chart_without_points_has_its_title_only() -> None:
    picture = charts_svg([line(), line((1, 1))])
    assert picture.count("<circle") == 1


def test_limits_are_marked_within_the_picture() -> None:
    root = ElementTree.fromstring(charts_svg([line((0, 1), (1, 2), limit=50.0)]))
    marks = [e for e in root.iter(f"{SVG}line") if "stroke-dasharray" in e.attrib]
    assert len(marks) == 1
    assert 0 < float(marks[0].attrib["y1"]) < 320


def test_names_are_escaped_and_charts_stacked() -> None:
    chart = Chart('p99 < 1 & "more"', "x", (Series("<a>", ((1.0, 2.0),)),))
    root = ElementTree.fromstring(charts_svg([chart, chart]))
    assert root.attrib["height"] == "640"
    assert root.attrib["aria-label"].startswith('p99 < 1 & "more"')


@pytest.mark.parametrize("value", [1e-6, 1.0, 3.0, 999.0, 12345.0])
def test_scales_hold_values_of_any_size(value: float) -> None:
    for is_log in (False, True):
        ((x, y),) = dots(line((value, value), is_log=is_log))
        assert 0 <= x <= 640 and 0 <= y <= 320
