"""Draw ``docs/images/timeline-*.svg``: what the scheduler does, mode by mode.

    python docs/draw_timelines.py          # or: make docs

The same as ``chairlift timeline --svg``. ``draw()`` gives the pictures without writing them.
"""

from __future__ import annotations

from pathlib import Path

from chairlift.simulate.timeline import MODES, TimelineSpec, run_timeline
from chairlift.simulate.timeline_svg import timelines_svg

FOLDER = Path(__file__).parent / "images"
SPECS = {
    "timeline-modes.svg": TimelineSpec((2, 3, 5, 4, 6, 3), (0,) * 6, 3),
    "timeline-long-tail.svg": TimelineSpec((2, 3, 5, 4, 6, 40), (0,) * 6, 3),
    "timeline-arrivals.svg": TimelineSpec((1, 3, 2, 3, 3, 2), (0, 0, 0, 1, 2, 3), 3),
}


def draw() -> dict[str, str]:
    """All pictures, by file name."""
    return {
        name: timelines_svg([run_timeline(spec, mode) for mode in MODES])
        for name, spec in SPECS.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file_name, picture in draw().items():
        (FOLDER / file_name).write_text(picture, encoding="utf-8")
