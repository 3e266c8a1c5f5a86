"""Line charts as SVG: figures against load, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 72, 150, 44, 48
COLOURS = ("#2f6fb7", "#c2571a", "#2e8555", "#8a4fb0", "#0f7c8c", "#b23a5b")

_STYLE = """\
<style>.page{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0}
@media (prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}.faint{fill:#9198a1}
.grid{stroke:#3d444d}}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:12px}
.big{font-size:14px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}</style>"""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, and its points from left to right. NaN and infinite ones are left out."""

    name: str
    points: tuple[tuple[float, float], ...]

    def finite(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with linear x and linear or logarithmic y.

    Attributes:
        limit: A value to mark with a dashed line; ``None``: none.
        is_log: Logarithmic y; values that are not above 0 are left out.
    """

    title: str
    x_label: str
    series: tuple[Series, ...]
    limit: float | None = None
    is_log: bool = False


def charts_svg(charts: Sequence[Chart]) -> str:
    """Draw charts one below the other into one SVG document."""
    height = HEIGHT * len(charts)
    parts = [_draw(chart, HEIGHT * i) for i, chart in enumerate(charts)]
    titles = "; ".join(_escaped(chart.title) for chart in charts)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{titles}">',
            _STYLE,
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


class _Scale:
    """Maps values to pixels along one axis."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, is_log: bool) -> None:
        self._is_log = is_log
        self._start, self._end = start, end
        if is_log:
            self.ticks = _decades(min(values), max(values))
        else:
            self.ticks = _round_ticks(max([*values, 0.0]))
        self._low, self._high = self._of(self.ticks[0]), self._of(self.ticks[-1])

    def _of(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def __call__(self, value: float) -> float:
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _round_ticks(high: float) -> list[float]:
    """From 0 past the highest value in four to ten round steps."""
    if high <= 0:
        return [0.0, 1.0]
    rough = high / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]


def _draw(chart: Chart, offset: float) -> str:
    lines = [
        (series.name, [(x, y) for x, y in series.finite() if y > 0 or not chart.is_log])
        for series in chart.series
    ]
    xs = [x for _, points in lines for x, _ in points]
    ys = [y for _, points in lines for _, y in points]
    heading = f'<text class="ink big" x="{LEFT}" y="{offset + 24:g}">{_escaped(chart.title)}</text>'
    if not xs:
        return heading
    ys += [chart.limit] if chart.limit is not None else []
    top, bottom = offset + TOP, offset + HEIGHT - BOTTOM
    x_scale = _Scale(xs, LEFT, WIDTH - RIGHT, is_log=False)
    y_scale = _Scale(ys, bottom, top, is_log=chart.is_log)
    parts = [heading, *_axes(chart, x_scale, y_scale, top, bottom)]
    for index, (name, points) in enumerate(lines):
        # Every other line is dashed, so that two that coincide are both seen.
        dashes = ' stroke-dasharray="7 5"' if index % 2 else ""
        parts += _line(name, points, COLOURS[index % len(COLOURS)], dashes, x_scale, y_scale)
        y = top + 16 + 20 * index
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 16}" y="{y - 9:g}" width="12" height="12" rx="2" '
            f'fill="{COLOURS[index % len(COLOURS)]}"/><text class="ink" '
            f'x="{WIDTH - RIGHT + 34}" y="{y + 2:g}">{_escaped(name)}</text>'
        )
    return "\n".join(parts)


def _axes(chart: Chart, x_scale: _Scale, y_scale: _Scale, top: float, bottom: float) -> list[str]:
    right = WIDTH - RIGHT
    parts = []
    for tick in y_scale.ticks:
        y = y_scale(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
            f'<text class="faint end" x="{LEFT - 8}" y="{y + 4:.1f}">{tick:,.10g}</text>'
        )
    for tick in x_scale.ticks:
        x = x_scale(tick)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="{bottom:g}" x2="{x:.1f}" y2="{bottom + 5:g}"/>'
            f'<text class="faint mid" x="{x:.1f}" y="{bottom + 19:g}">{tick:,.10g}</text>'
        )
    label = _escaped(chart.x_label)
    middle = (LEFT + right) / 2
    parts.append(f'<text class="faint mid" x="{middle:g}" y="{bottom + 38:g}">{label}</text>')
    if chart.limit is not None:
        y = y_scale(chart.limit)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#b23a5b" '
            'stroke-dasharray="6 4"/>'
            f'<text class="faint" x="{LEFT + 6}" y="{y - 5:.1f}">limit {chart.limit:,.10g}</text>'
        )
    return parts


def _line(
    name: str,
    points: list[tuple[float, float]],
    colour: str,
    dashes: str,
    x_scale: _Scale,
    y_scale: _Scale,
) -> list[str]:
    pixels = [(x_scale(x), y_scale(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    dots = [
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}">'
        f"<title>{_escaped(name)}: {x:g}, {y:g}</title></circle>"
        for (px, py), (x, y) in zip(pixels, points, strict=True)
    ]
    line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
    return [line, *dots]


def _escaped(text: str) -> str:
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(mark, entity)
    return text
