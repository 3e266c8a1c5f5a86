"""A timeline as a picture that reads well on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence

from chairlift.simulate.timeline import Stay, Timeline

WIDTH, MARGIN, LABEL_WIDTH = 960, 20, 62
LANE_HEIGHT, LANE_GAP, HEAD_HEIGHT, FOOT_HEIGHT = 26, 4, 48, 40
MAX_LANES = 64
"""Slots drawn per mode; a picture with more cannot be read."""

# Hues that differ for people who do not tell red from green, dark enough for white letters.
COLOURS = ("#2f6fb7", "#c2571a", "#2e8555", "#8a4fb0", "#0f7c8c", "#b23a5b", "#8c6d1f", "#56606b")

STYLE = """\
<style>
.page{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#59636e}.lane{fill:#eff2f5}
.grid{stroke:#d1d9e0}.idle{stroke:#59636e}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117}.ink{fill:#f0f6fc}.faint{fill:#9198a1}.lane{fill:#1c2128}
.grid{stroke:#3d444d}.idle{stroke:#9198a1}}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:13px}
.big{font-size:15px;font-weight:600}.name{fill:#ffffff;font-weight:600;text-anchor:middle}
.mid{text-anchor:middle}.small{font-size:11px}
</style>"""

_HATCH = """\
<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse"\
 patternTransform="rotate(45)"><line class="idle" x1="0" y1="0" x2="0" y2="6" stroke-width="1.5"\
 stroke-opacity="0.5"/></pattern></defs>"""


def timelines_svg(timelines: Sequence[Timeline]) -> str:
    """Draw timelines one below the other, to the same scale.

    Returns:
        An SVG document. Bars are requests, one row per slot; hatched where a slot is taken by a
        request that has ended and waits for its batch.
    """
    longest = max(timeline.num_steps for timeline in timelines)
    step_width = (WIDTH - 2 * MARGIN - LABEL_WIDTH) / longest
    parts: list[str] = []
    top = float(MARGIN)
    for timeline in timelines:
        parts += _draw(timeline, top, step_width)
        top += HEAD_HEIGHT + _num_lanes(timeline) * (LANE_HEIGHT + LANE_GAP) + FOOT_HEIGHT
    height = top + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
            f'width="{WIDTH}" height="{height:g}" role="img" '
            f'aria-label="{_label(timelines)}">',
            STYLE,
            _HATCH,
            f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="6"/>',
            *parts,
            f'<text class="faint small" x="{MARGIN}" y="{height - 12:g}">Bars: a token at each '
            "step. Hatched: the request has ended, its slot waits for the rest of the batch."
            "</text>",
            "</svg>\n",
        ]
    )


def _num_lanes(timeline: Timeline) -> int:
    return min(timeline.max_num_seqs, MAX_LANES, max(s.slot for s in timeline.stays) + 2)


def _label(timelines: Sequence[Timeline]) -> str:
    return "; ".join(f"{t.mode} batching: {t.num_steps} steps" for t in timelines)


def _draw(timeline: Timeline, top: float, step_width: float) -> list[str]:
    left, lanes_top = MARGIN + LABEL_WIDTH, top + HEAD_HEIGHT
    num_lanes = _num_lanes(timeline)
    bottom = lanes_top + num_lanes * (LANE_HEIGHT + LANE_GAP)
    parts = [
        f'<text class="ink big" x="{MARGIN}" y="{top + 16:g}">{timeline.mode} batching</text>',
        f'<text class="faint" x="{MARGIN}" y="{top + 35:g}">{timeline.num_steps} steps, '
        f"{timeline.utilisation:.1%} of the slots used, requests back after "
        f"{timeline.mean_return_step:.1f} steps on average</text>",
    ]
    lane_width = timeline.num_steps * step_width
    for slot in range(num_lanes):
        y = lanes_top + slot * (LANE_HEIGHT + LANE_GAP)
        parts.append(
            f'<text class="faint" x="{MARGIN}" y="{y + 18:g}">slot {slot + 1}</text>'
            f'<rect class="lane" x="{left}" y="{y:g}" width="{lane_width:.2f}" '
            f'height="{LANE_HEIGHT}" rx="3"/>'
        )
    parts += _ticks(timeline.num_steps, left, lanes_top, bottom, step_width)
    for index, stay in enumerate(timeline.stays):
        if stay.slot < num_lanes:
            y = lanes_top + stay.slot * (LANE_HEIGHT + LANE_GAP)
            parts += _bar(stay, COLOURS[index % len(COLOURS)], left, y, step_width)
    return parts


def _ticks(num_steps: int, left: float, top: float, bottom: float, step: float) -> list[str]:
    """Numbered lines at the ends of steps, at least 24 pixels apart."""
    every = next(n for n in _round_numbers() if n * step >= 24)
    return [
        f'<line class="grid" x1="{left + n * step:.2f}" y1="{top:g}" x2="{left + n * step:.2f}" '
        f'y2="{bottom:g}"/><text class="faint small mid" x="{left + n * step:.2f}" '
        f'y="{bottom + 13:g}">{n}</text>'
        for n in range(every, num_steps + 1, every)
    ]


def _round_numbers() -> list[int]:
    return [factor * 10**power for power in range(8) for factor in (1, 2, 5)]


def _bar(stay: Stay, colour: str, left: float, y: float, step: float) -> list[str]:
    start = left + (stay.first_step - 1) * step
    end, back = left + stay.last_step * step, left + stay.returned_at * step
    title = (
        f"{stay.name}: {stay.num_tokens} tokens, steps {stay.first_step} to {stay.last_step}, "
        f"returned after step {stay.returned_at}"
    )
    parts = []
    if back > end:
        parts.append(
            f'<rect x="{end:.2f}" y="{y:g}" width="{back - end:.2f}" height="{LANE_HEIGHT}" '
            'rx="3" fill="url(#idle)"/>'
        )
    width = max(end - start - 1, 0.5)
    parts.append(
        f'<rect x="{start:.2f}" y="{y:g}" width="{width:.2f}" height="{LANE_HEIGHT}" rx="3" '
        f'fill="{colour}"><title>{title}</title></rect>'
    )
    if width >= 8 * len(stay.name) + 4:
        middle = start + width / 2
        parts.append(f'<text class="name" x="{middle:.2f}" y="{y + 18:g}">{stay.name}</text>')
    return parts
